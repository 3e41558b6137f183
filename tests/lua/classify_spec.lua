local classify = require "neap.classify"
local library = require "neap.library"
local policy = require "neap.policy"
local retry_after = require "neap.retry_after"
local version = require "tests.lua.version"
local unpack = version.unpack

local function verdict(classifier, call)
  return (classifier(call))
end

describe("how a call ended", function()
  for _, case in ipairs {
    -- ended_by      verdict      because
    { "caller",      "neutral",   "the caller gave up (B071)" },
    { "bulkhead",    "neutral",   "our own limit refused it (B088)" },
    { "timeout",     "failure",   "no answer in time" },
    { "transport",   "failure",   "no connection, or a broken one" },
    { "something",   "failure",   "whatever it is, it is no answer" },
  } do
    it(("%s is %s: %s"):format(case[1], case[2], case[3]), function()
      local call = { ended_by = case[1], status = 200, error = "x", grpc_status = 0,
        code = "FLAG_NOT_FOUND" }
      for _, name in ipairs { "transport", "http", "grpc", "ofrep", "default" } do
        local outcome, reason = classify[name](call)
        assert.equal(case[2], outcome, name)
        assert.equal(case[1], reason, name)
      end
    end)
  end

  it("goes before what the error looks like: an abort behind a driver's text is neutral (B071)",
    function()
    local call = { ended_by = "caller", raised = true, error = "driver: connection reset by peer" }
    assert.equal("neutral", verdict(classify.default, call))
    assert.equal("neutral", verdict(classify.errors { record = { "reset" } }, call))
  end)

  it("is neutral for a cancel in every phase (B073)", function()
    for _, phase in ipairs { "connect", "sent", "headers", "body" } do
      assert.equal("neutral",
        verdict(classify.default, { ended_by = "caller", phase = phase, status = 200 }))
    end
  end)
end)

describe("a result of a Lua function", function()
  for _, case in ipairs {
    { {},                                   "success", "nothing at all" },
    { { result = "value" },                 "success", "a value" },
    { { error = "it broke" },               "failure", "nil and an error" },
    { { result = false, error = "no" },     "failure", "false and an error" },
    { { result = "value", error = "hint" }, "success", "a value and something besides" },
    { { raised = true, error = "boom" },    "failure", "a raised error" },
    { { raised = true },                    "failure", "a raised nil (B199)" },
    { { raised = true, error = {} },        "failure", "a raised table (B199)" },
    { { error = setmetatable({}, { __index = error, __tostring = error, __eq = error }) },
      "failure",
      "an error object that raises when asked (B172)" },
  } do
    it(("is %s: %s"):format(case[2], case[3]), function()
      assert.equal(case[2], verdict(classify.default, case[1]))
    end)
  end
end)

describe("an HTTP status", function()
  local ranges = {
    { 100, 199, "success" }, { 200, 299, "success" }, { 300, 399, "success" },
    { 400, 428, "neutral" }, { 429, 429, "failure" }, { 430, 498, "neutral" },
      { 499, 499, "neutral" },
    { 500, 599, "failure" }, { 600, 999, "failure" }, { 0, 99, "failure" }, { -5, -1, "failure" },
  }
  for _, range in ipairs(ranges) do
    it(("from %d to %d is %s"):format(unpack(range)), function()
      for status = range[1], range[2] do
        assert.equal(range[3], verdict(classify.http, { status = status, ended_by = "answer" }),
          tostring(status))
        assert.equal(range[3], verdict(classify.default, { status = status }), tostring(status))
      end
    end)
  end

  it("that is none is a failure", function()
    for _, status in ipairs { "200", true, {}, 404.5, 0 / 0, 1 / 0 } do
      local outcome, reason = classify.http { status = status }
      assert.equal("failure", outcome)
      assert.equal("no HTTP status", reason)
    end
  end)

  it("says why, and for 429 and 503 how long to wait (B076)", function()
    local headers = { ["retry-after"] = "60" }
    assert.same({ "failure", "status 503", 60000 },
      { classify.http { status = 503, headers = headers } })
    assert.same({ "failure", "status 429", 60000 },
      { classify.http { status = 429, headers = headers } })
    assert.same({ "failure", "status 500" }, { classify.http { status = 500, headers = headers } })
    assert.same({ "neutral", "status 404" }, { classify.http { status = 404, headers = headers } })
    assert.same({ "success" }, { classify.http { status = 200, headers = headers } })
    assert.same({ "failure", "status 503" }, { classify.http { status = 503 } })
  end)

  it("is judged by tables of the library's own, which can be printed and changed (B077, B078)",
    function()
    local mine, other = classify.new(), classify.new()
    mine.http.status[429] = "neutral"
    mine.http.class[4] = "failure"
    mine.http.status[501] = "success"
    assert.equal("neutral", verdict(mine.http, { status = 429 }))
    assert.equal("failure", verdict(mine.http, { status = 404 }))
    assert.equal("success", verdict(mine.http, { status = 501 }))
    assert.equal("failure", verdict(mine.default, { status = 404 }))
    assert.equal("failure", verdict(other.http, { status = 429 }))
    assert.equal("failure", verdict(classify.http, { status = 429 }))
    assert.is_true(library.is_changed(mine))
    assert.is_false(library.is_changed(other))
    assert.same({ [429] = "failure", [499] = "neutral" }, classify.http.status)
  end)
end)

describe("a gRPC status", function()
  -- 0 to 16, in the order of their numbers
  local codes = {
    [0] = { "OK", "success" }, { "CANCELLED", "neutral" }, { "UNKNOWN", "failure" },
    { "INVALID_ARGUMENT", "neutral" }, { "DEADLINE_EXCEEDED", "failure" },
      { "NOT_FOUND", "neutral" },
    { "ALREADY_EXISTS", "neutral" }, { "PERMISSION_DENIED", "neutral" },
      { "RESOURCE_EXHAUSTED", "failure" },
    { "FAILED_PRECONDITION", "neutral" }, { "ABORTED", "neutral" }, { "OUT_OF_RANGE", "neutral" },
    { "UNIMPLEMENTED", "neutral" }, { "INTERNAL", "failure" }, { "UNAVAILABLE", "failure" },
    { "DATA_LOSS", "failure" }, { "UNAUTHENTICATED", "neutral" },
  }
  for number = 0, 16 do
    local name, expected = unpack(codes[number])
    it(("%d, %s, is %s, as number, as text and by name (B089)"):format(number, name, expected),
      function()
      for _, status in ipairs { number, tostring(number), name, name:lower() } do
        local outcome, reason = classify.grpc { grpc_status = status, status = 200,
          ended_by = "answer" }
        assert.equal(expected, outcome)
        assert.equal(expected ~= "success" and name or nil, reason)
        assert.equal(expected, verdict(classify.default, { grpc_status = status, status = 200 }))
        local headers = { ["grpc-status"] = tostring(status) }
        assert.equal(expected, verdict(classify.grpc, { headers = headers, status = 200 }))
      end
    end)
  end

  it("that nobody knows is a failure, like UNKNOWN, and raises nothing (B091)", function()
    for _, case in ipairs {
      { 99, "99" }, { "banana", "BANANA" }, { -1, "-1" }, { 1.5, "1.5" }, { {}, "table" },
        { true, "boolean" },
      { 0 / 0 }, { 1 / 0, "inf" },
    } do
      local outcome, reason = classify.grpc { grpc_status = case[1] }
      assert.equal("failure", outcome)
      if case[2] then assert.equal(case[2], reason) end
    end
  end)

  it("that is missing from an answer is a failure; other HTTP statuses are judged as such",
    function()
    assert.same({ "failure", "no gRPC status" }, { classify.grpc { status = 200, headers = {} } })
    assert.equal("failure", verdict(classify.grpc, { status = 502 }))
    assert.equal("neutral", verdict(classify.grpc, { status = 404 }))
    assert.equal("failure", verdict(classify.grpc, { error = "no" }))
  end)

  it("can be given another meaning (B091)", function()
    local mine = classify.new()
    mine.grpc.code.NOT_FOUND = "failure"
    mine.grpc.other = "neutral"
    assert.equal("failure", verdict(mine.grpc, { grpc_status = 5 }))
    assert.equal("neutral", verdict(mine.grpc, { grpc_status = 99 }))
  end)

  it("american spelling is the same", function()
    assert.same({ "neutral", "CANCELLED" }, { classify.grpc { grpc_status = "CANCELED" } })
  end)
end)

describe("a flag provider's code", function()
  for code, expected in pairs {
    FLAG_NOT_FOUND = "neutral", PARSE_ERROR = "neutral", INVALID_CONTEXT = "neutral",
    TARGETING_KEY_MISSING = "neutral", TYPE_MISMATCH = "neutral", PROVIDER_NOT_READY = "failure",
    PROVIDER_FATAL = "failure", GENERAL = "failure",
  } do
    it(("%s is %s"):format(code, expected), function()
      assert.same({ expected, code }, { classify.ofrep { status = 400, code = code } })
      assert.same({ expected, code }, { classify.default { status = 400, code = code } })
      local body = ('{"key":"f","errorCode" : "%s","errorDetails":"x"}'):format(code)
      assert.same({ expected, code }, { classify.ofrep { status = 404, body = body } })
    end)
  end

  it("that is not known leaves it to the status", function()
    assert.same({ "failure", "status 500" }, { classify.ofrep { status = 500, code = "WHAT" } })
    assert.same({ "success" }, { classify.ofrep { status = 200, code = "WHAT" } })
    assert.same({ "neutral", "status 404" }, { classify.ofrep { status = 404, body = "<html>" } })
    assert.same({ "neutral", "status 404" }, { classify.ofrep { status = 404, body = 5 } })
    assert.same({ "failure", "status 500" }, { classify.ofrep { status = 500, code = {} } })
  end)

  it("in the body of a good answer is data", function()
    local body = '{"value":"\\"errorCode\\":\\"GENERAL\\"", "errorCode":"GENERAL"}'
    assert.same({ "success" }, { classify.ofrep { status = 200, body = body } })
  end)
end)

describe("lists of error kinds", function()
  for _, case in ipairs {
    -- record    ignore    error    verdict     because
    { { "X" },   { "X" },  "X",     "neutral",  "in both: ignored goes first" },
    { { "X" },   { "Y" },  "X",     "failure",  "recorded, another is ignored" },
    { { "Y" },   { "X" },  "X",     "neutral",  "ignored, another is recorded" },
    { { "Y" },   { "Z" },  "X",     "success",  "in neither, with a record list" },
    { {},        { "X" },  "X",     "neutral",  "ignored, no record list" },
    { {},        { "Y" },  "X",     "failure",  "in neither, no record list" },
    { { "X" },   {},       "X",     "failure",  "recorded, none ignored" },
    { { "Y" },   {},       "X",     "success",  "only others are recorded" },
  } do
    it(("say %s: %s (B080, B085)"):format(case[4], case[5]), function()
      local by_lists = classify.errors { record = case[1], ignore = case[2] }
      assert.equal(case[4], verdict(by_lists, { error = { kind = case[3] } }))
      local text = ([[return { name = "x", trip = { failures = 5 }, classify = classify.errors {
        record = { %s }, ignore = { %s } } }]]):format(case[1][1] and '"' .. case[1][1] .. '"'
          or "",
        case[2][1] and '"' .. case[2][1] .. '"' or "")
      local p = assert(policy.parse(text, "x.lua"))
      assert.equal(case[4], (p.classify { error = { kind = case[3] } }))
    end)
  end

  it("find a kind by kind, code, name or type, or in a text", function()
    local by_lists = classify.errors { record = { "ETIMEDOUT" } }
    for _, err in ipairs { { kind = "ETIMEDOUT" }, { code = "ETIMEDOUT" }, { name = "ETIMEDOUT" },
      { type = "ETIMEDOUT" }, "x.lua:5: read: ETIMEDOUT", "ETIMEDOUT" } do
      assert.same({ "failure", "ETIMEDOUT" }, { by_lists { error = err } })
    end
    for _, err in ipairs { { message = "ETIMEDOUT" }, "ECONNRESET", 5, true, {}, print } do
      assert.equal("success", verdict(by_lists, { error = err }))
    end
  end)

  it("follow an error's causes (B079)", function()
    local by_lists = classify.errors { ignore = { "NOT_FOUND" } }
    local err = { kind = "EXECUTOR",
      cause = { kind = "TIMEOUT", cause = { cause = { kind = "NOT_FOUND" } } } }
    assert.same({ "neutral", "NOT_FOUND" }, { by_lists { error = err } })
    err = { kind = "WRAPPED", cause = "database: NOT_FOUND" }
    assert.same({ "neutral", "NOT_FOUND" }, { by_lists { error = err } })
  end)

  it("end with a chain of causes that is a circle, or very long (B079)", function()
    local by_lists = classify.errors { ignore = { "NOT_FOUND" } }
    local circle = { kind = "A" }
    circle.cause = { kind = "B", cause = circle }
    assert.equal("failure", verdict(by_lists, { error = circle }))
    local long = { kind = "NOT_FOUND" }
    for _ = 1, 10000 do long = { kind = "WRAPPED", cause = long } end
    assert.equal("failure", verdict(by_lists, { error = long }))
  end)

  it("do not ask an error's metatable (B172)", function()
    local nosy = setmetatable({}, { __index = function() error("asked") end, __eq = error })
    assert.equal("failure", verdict(classify.errors { ignore = { "X" } }, { error = nosy }))
  end)

  it("leave calls without an error to the shipped verdict", function()
    local by_lists = classify.errors { record = { "X" } }
    assert.equal("failure", verdict(by_lists, { status = 503 }))
    assert.equal("failure", verdict(by_lists, { ended_by = "timeout" }))
    assert.equal("success", verdict(by_lists, { status = 200 }))
  end)

  for _, case in ipairs {
    { "5", "a table { record = {...}, ignore = {...} } is needed" },
    { '{ ignroe = { "X" } }', "ignroe is not known: did you mean ignore?" },
    { '{ record = "X" }', "record must be a list of kinds, not a string" },
    { "{ record = { X = true } }", "record is to be a list: [X] is no place in it" },
    { '{ record = { "X", nil, "Y" } }', "record is to be a list: [3] is no place in it" },
    { "{ record = { 5 } }", "record[1] must be the name of a kind" },
    { '{ ignore = { "" } }', "ignore[1] must be the name of a kind" },
    { '{ ignore = { ("x"):rep(101) } }', "ignore[1] must be the name of a kind" },
    { '{ ignore = (function() local t = {} for i = 1, 101 do t[i] = "x" end return t end)() }',
      "ignore has more than 100 kinds" },
  } do
    it("are checked: " .. case[1], function()
      local text = 'return {\nname = "x",\nclassify = classify.errors(%s) }'
      local p, err = policy.parse(text:format(case[1]), "x.lua")
      assert.is_nil(p)
      assert.equal("x.lua:3: classify.errors: " .. case[2], tostring(err))
    end)
  end
end)

describe("Retry-After", function()
  local at = 784111777 -- Sun, 06 Nov 1994 08:49:37 GMT

  for _, case in ipairs {
    -- value                               ms
    { "120",                               120000 },
    { " 7 ",                               7000 },
    { "0",                                 nil, "now is no wait" },
    { "31536000",                          31536000000, "a year is the most" },
    { "31536001",                          nil, "more is absurd" },
    { "1000000000000",                     nil, "absurd" },
    { ("9"):rep(64),                       nil, "absurd" },
    { ("9"):rep(65),                       nil, "too long to be read" },
    { "-5",                                nil, "negative" },
    { "1.5",                               nil, "no number of seconds" },
    { "1e3",                               nil, "no number of seconds" },
    { "0x10",                              nil, "no number of seconds" },
    { "soon",                              nil, "text" },
    { "",                                  nil, "nothing" },
    { "Sun, 06 Nov 1994 08:50:37 GMT",     60000 },
    { "Sunday, 06-Nov-94 08:50:37 GMT",    60000, "as in RFC 850" },
    { "Sun Nov  6 08:50:37 1994",          60000, "as asctime() writes it" },
    { "Sun, 06 Nov 1994 08:49:37 GMT",     nil, "is now" },
    { "Sun, 06 Nov 1994 08:49:36 GMT",     nil, "is past" },
    { "Thu, 06 Nov 2094 08:49:36 GMT",     nil, "in a hundred years" },
    { "Sun, 06 Nov 1994 24:00:00 GMT",     nil, "no time of day" },
    { "Sun, 00 Nov 1994 08:50:37 GMT",     nil, "no day" },
    { "Sun, 06 Foo 1994 08:50:37 GMT",     nil, "no month" },
    { "Sun, 06 Nov 1994 08:50:37 CET",     nil, "no GMT" },
    { "Sun, 06 Nov 1994 08:50:37 GMT x",   nil, "something after it" },
  } do
    it(("%q is %s%s (B076)"):format(case[1]:sub(1, 40), tostring(case[2]),
      case[3] and ": " .. case[3] or ""), function()
      assert.equal(case[2], retry_after.of(case[1], at))
    end)
  end

  it("takes two digits of a year for the nearest century that can be", function()
    local function day(seconds) return math.floor(seconds / 86400) end
    assert.equal(day(os.time { year = 2030, month = 11, day = 6, hour = 0 }),
      day(retry_after.date("Wednesday, 06-Nov-30 08:49:37 GMT")))
    assert.equal(784111777, retry_after.date("Sunday, 06-Nov-94 08:49:37 GMT"))
  end)

  it("knows every day from 1970 to 2100 (against the system's calendar)", function()
    local days = { "Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed" }
    for day = 0, 47481, 13 do
      local seconds = day * 86400 + 3661
      local text = os.date("!%d %b %Y %H:%M:%S GMT", seconds)
      assert.equal(seconds, retry_after.date(days[day % 7 + 1] .. ", " .. text))
    end
  end)

  it("is counted from the answer's own Date, whatever our clock says", function()
    local headers = { ["retry-after"] = "Sun, 06 Nov 1994 08:50:37 GMT",
      date = "Sun, 06 Nov 1994 08:49:37 GMT" }
    assert.equal(60000, retry_after.ms(headers))
    headers.date = "nonsense"
    assert.is_nil(retry_after.ms(headers))
  end)

  it("is counted from our clock without one", function()
    local soon = os.date("!%a, %d %b %Y %H:%M:%S GMT", os.time() + 100)
    local ms = retry_after.ms { ["retry-after"] = soon }
    assert.is_true(ms >= 99000 and ms <= 100000, tostring(ms))
  end)

  it("is found whatever the case of its name, in a list of values, as a number", function()
    for _, headers in ipairs {
      { ["retry-after"] = "5" }, { ["Retry-After"] = "5" }, { ["RETRY-AFTER"] = "5" },
      { ["retry-after"] = { "5", "6" } }, { ["retry-after"] = 5 },
    } do
      assert.equal(5000, retry_after.ms(headers))
    end
    for _, headers in ipairs { {}, { ["retry-after"] = {} }, { ["retry-after"] = true },
      { "retry-after", "5" } } do
      assert.is_nil(retry_after.ms(headers))
    end
    assert.is_nil(retry_after.ms(nil))
    assert.is_nil(retry_after.ms("retry-after: 5"))
  end)

  it("is not looked for for ever", function()
    local headers = {}
    for i = 1, 100000 do headers["x-" .. i] = "y" end
    local before = os.clock()
    for _ = 1, 100 do retry_after.ms(headers) end
    assert.is_true(os.clock() - before < 1)
  end)

  it("is at hand for a policy that asks", function()
    assert.equal(5000, classify.retry_after_ms { headers = { ["retry-after"] = "5" } })
    local p = assert(policy.parse([[
      return { name = "x", trip = { failures = 5 }, classify = function(call)
        if call.status == 420 then return "failure", "calm down", classify.retry_after_ms(call) end
        return classify.http(call)
      end }
    ]], "x.lua"))
    assert.same({ "failure", "calm down", 7000 },
      { p.classify { status = 420, headers = { ["retry-after"] = "7" } } })
  end)
end)

describe("a classifier", function()
  it("is told from other tables", function()
    assert.is_true(classify.is_classifier(classify.http))
    assert.is_true(classify.is_classifier(classify.errors {}))
    assert.is_false(classify.is_classifier({}))
    assert.is_false(classify.is_classifier(nil))
    assert.is_false(classify.is_classifier(classify))
  end)
end)
