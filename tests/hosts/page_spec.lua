-- The page: what it is made of, and what it is told.

local admin = require "neap.admin"
local guards = require "tests.support.guards"
local json = require "neap.cmd.json"
local live = require "neap.page.live"
local recent = require "neap.page.recent"

local guard, clock, shown, pages, token

local NOON = 1800000000000

local RULES = { consecutive_failures = 2, cooldown_ms = 5000, jitter = 0, probes = 2,
  successes = 2 }

local function open(options)
  guard, clock = guards.new("flags", options)
  token = nil
  local function all() return { flags = guard } end
  shown = live.new {
    guards = all, rows = function() return {} end,
    now_ms = function() return guard.line.native:now() end,
    wall_ms = function(at_ms) return NOON + at_ms end,
  }
  pages = admin.open { guards = all, live = shown, token = function() return token end }
end

before_each(function() open { rules = RULES } end)

local function step()
  while shown.recent:look(1) do end -- luacheck: ignore 542
  clock:advance(recent.STEP_MS)
end

local function get(target, headers)
  headers = headers or {}
  headers.host = headers.host or "localhost:9464"
  local answer = pages:handle { method = "GET", target = target, headers = headers }
  if type(answer.body) == "function" then
    local parts = {}
    for part in answer.body do parts[#parts + 1] = part end
    answer.body = table.concat(parts)
  end
  return answer
end

--- The rows of an answer by key, with their fields by name.
local function ask(query)
  local answer = assert(json.decode(get("/live" .. (query or "")).body))
  local rows = {}
  for _, list in ipairs(answer.rows) do
    local row = {}
    for i, field in ipairs(answer.fields) do row[field] = list[i] end
    rows[row.key] = row
  end
  answer.by_key = rows
  return answer
end

local function ask_again(answer)
  return ask(("?of=%s&since=%d&step=%d"):format(answer.instance, answer.version, answer.step))
end

local function call(status, key) guards.call(guard, status, 0, key) end

describe("what the page is told", function()
  it("has of each breaker its state, its window, and when it asks again", function()
    call(200) call(500) call(500)
    local row = ask().by_key.default
    assert.same({ "flags", "open", "auto", 0 }, { row.policy, row.state, row.mode, row.calls })
    assert.equal(NOON + clock:now() + 5000, row.probe_at)
    assert.truthy(row.moved:find("^closed %-> open: 2 failures in a row, limit 2"))
  end)

  it("never says that a probe is due before it is", function()
    clock:advance(30)
    call(500) call(500)
    assert.equal(NOON + clock:now() + 5070, ask().by_key.default.probe_at)
  end)

  it("has what became of the calls, step by step: good, slow, failed, refused", function()
    step()
    call(200) call(200) call(500)
    step()
    call(500) call(200) call(200)
    step()
    assert.same({ 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 1, 2 }, ask().by_key.default.points)
  end)

  it("has the last minutes, and no more", function()
    call(200)
    for _ = 1, recent.POINTS - 1 do step() end
    assert.equal((recent.POINTS - 1) * 4, #ask().by_key.default.points)
    assert.equal(1, ask().by_key.default.points[1])
    step()
    local points = ask().by_key.default.points
    assert.same({ (recent.POINTS - 1) * 4, 0 }, { #points, points[1] })
    step()
    assert.equal(json.null, ask().by_key.default.points)
  end)

  it("has only what changed, for who knows the rest", function()
    for _, key in ipairs { "a", "b" } do call(200, key) end
    step()
    local all = ask()
    assert.same({ 2, "a", "b" }, { all.count, all.by_key.a.key, all.by_key.b.key })
    assert.same({}, ask_again(all).by_key)
    call(500, "b")
    local then_ = ask_again(all)
    assert.same({ nil, "b", 2 }, { then_.by_key.a, then_.by_key.b.key, then_.count })
    assert.same({}, ask_again(then_).by_key)
    step() -- the point of the call comes when the step is whole
    local last = ask_again(then_)
    assert.same({ 0, 0, 1, 0 }, last.by_key.b.points)
    assert.is_nil(last.by_key.a)
    assert.same({}, ask_again(last).by_key)
  end)

  it("is told to each of several, whatever the others were told", function()
    call(200)
    local one, other = ask(), ask()
    call(500)
    assert.equal("default", ask_again(one).by_key.default.key)
    assert.equal("default", ask_again(other).by_key.default.key)
  end)

  it("misses nothing that changes while another's answer is under way", function()
    for _, key in ipairs { "a", "b" } do call(200, key) end
    local first = ask()
    local slow = shown:parts(("of=%s&since=%d"):format(first.instance, first.version))
    slow() -- its head
    local fast = ask_again(first)
    call(500, "a")
    for _ in slow do end -- luacheck: ignore 542
    assert.equal("a", (ask_again(fast).by_key.a or {}).key)
  end)

  it("is all, to who knew another process", function()
    call(200)
    local answer = ask()
    assert.same({}, ask_again(answer).by_key)
    assert.truthy(ask("?of=1&since=1000&step=1000").by_key.default)
    assert.truthy(ask("?since=x&step=%00&of=[").by_key.default)
  end)

  it("says of steady traffic that there is some", function()
    open { rules = { failure_rate = 0.5, minimum_calls = 5, window = "count", calls = 5,
      cooldown_ms = 5000, jitter = 0 } }
    for _ = 1, 10 do call(200) end
    local answer = ask()
    call(200) -- the window looks the same
    assert.truthy(ask_again(answer).by_key.default)
  end)

  it("has no breaker that nobody uses beside those that are", function()
    assert.truthy(ask().by_key.default)
    call(200, "a")
    assert.same({ "a", 1 }, { next(ask().by_key), ask().count })
  end)

  it("has the limits of each policy, and what its fallbacks answered of what was asked", function()
    call(200) call(500) call(500)
    step()
    local policy = ask().policies[1]
    assert.same({ 2, 2, false }, { policy.limits.consecutive_failures, policy.limits.successes,
      policy.trips })
    assert.equal("number", type(policy.fallbacks))
  end)

  it("has durations as bounds: half, and 99 of 100, were not over", function()
    local function last(ms) guards.call(guard, 200, ms) end
    for _ = 1, 60 do last(3) end
    for _ = 1, 40 do last(300) end
    local row = ask().by_key.default
    assert.same({ 5, 500, 0 }, { row.p50, row.p99, row.over })
    for _ = 1, 30 do step() end -- two minutes later these are old
    last(40000)
    row = ask().by_key.default
    assert.same({ 30000, 30000, 2 }, { row.p50, row.p99, row.over })
  end)

  it("is JSON whatever the keys are", function()
    local keys = { '"},[<script>', "\n\0\255", "a\226\128\168b", "../..", "]" }
    for _, key in ipairs(keys) do call(200, key) end
    assert.equal(#keys, ask().count)
    assert.truthy(ask().by_key['"},[<script>'])
  end)
end)

describe("of a breaker there are", function()
  local function moves(key)
    return assert(json.decode(get("/live/flags/" .. (key or "default")).body)).moves
  end

  it("the last transitions, the newest first, with why and when", function()
    call(500) call(500)
    clock:advance(5000)
    call(200)
    local list = moves()
    assert.same({ 2, "half_open", "open" }, { #list, list[1].to, list[2].to })
    assert.equal(NOON + clock:now() - 5000, list[2].at)
    assert.truthy(list[2].text:find("2 failures in a row", 1, true))
  end)

  it("twenty at most", function()
    for _ = 1, 30 do guard:trip() guard:reset() end
    assert.equal(20, #moves())
    assert.equal("closed", moves()[1].to)
  end)

  it("with how it opened, however many probes have failed since", function()
    call(500) call(500)
    for _ = 1, 30 do
      clock:advance(600000)
      call(500)
    end
    local list = moves()
    assert.equal(20, #list)
    assert.same({ "open", "half_open" }, { list[1].to, list[2].to })
    assert.truthy(list[20].text:find("2 failures in a row", 1, true))
  end)

  it("its policy's configuration and its params, too", function()
    local said = assert(json.decode(get("/live/flags/default").body))
    assert.same({ "flags", "closed" }, { said.policy.name, said.breaker.state })
    assert.equal("flags", said.params.policy)
  end)

  it("none, and a near one is named, if it is misspelt", function()
    local answer = get "/live/flag/default"
    assert.equal(404, answer.status)
    assert.truthy(answer.body:find("did you mean flags?", 1, true))
  end)
end)

describe("what is kept", function()
  it("is nothing of a key that is gone", function()
    call(200, "a")
    step()
    local keys = shown.recent:policy("flags").keys
    assert.is_table(keys.a)
    guard.lines.a = nil
    step()
    assert.is_nil(keys.a)
  end)

  it("takes at most 6 KB for a breaker", function()
    local N = 200
    for i = 1, N do call(200, "key-" .. i) end
    collectgarbage() collectgarbage()
    local before = collectgarbage "count"
    for _ = 1, 31 do
      for i = 1, N do call(200, "key-" .. i) end
      step()
    end
    collectgarbage() collectgarbage()
    local each = (collectgarbage "count" - before) / N
    assert.is_true(each < 6, each .. " KB")
  end)
end)

describe("the document", function()
  local BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"

  local function document(headers)
    headers = headers or {}
    headers.accept = BROWSER
    return get("/", headers)
  end

  it("is for browsers; others have a list of what there is", function()
    assert.equal("text/html; charset=utf-8", document().type)
    for _, accept in ipairs { "*/*", "text/plain", "" } do
      assert.equal("text/plain; charset=utf-8", get("/", { accept = accept }).type)
    end
  end)

  it("may do no more than it does", function()
    local answer = document()
    local policy = answer.headers["Content-Security-Policy"]
    for _, what in ipairs { "script", "style" } do -- which a browser compares: test_page_browser.sh
      assert.equal(44, #policy:match(what .. "%-src 'sha256%-([%w+/]+=)';"))
    end
    for _, wanted in ipairs { "default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'",
      "form-action 'none'", "require-trusted-types-for 'script'" } do
      assert.truthy(policy:find(wanted, 1, true), wanted)
    end
    assert.is_nil(policy:find("unsafe", 1, true))
  end)

  it("has no attributes that run or look, and asks for nothing from elsewhere", function()
    local html = document().body:gsub("<script>.-</script>", ""):gsub("<style>.-</style>", "")
    for _, never in ipairs { "%son%a+=", "%sstyle=", "https?://%f[%w]", "src=" } do
      local at = html:gsub("http://www.w3.org/2000/svg", ""):find(never)
      assert.is_nil(at, never)
    end
    for _, never in ipairs { "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
      "eval(" } do
      assert.is_nil(document().body:find(never, 1, true), never)
    end
  end)

  it("needs no token, as it tells nothing; all that it asks for does", function()
    token = "0123456789abcdef"
    assert.equal(200, document().status)
    assert.equal(401, get("/").status)
    assert.equal(401, get("/live").status)
    assert.equal(401, get("/live/flags/default").status)
    assert.equal(200, get("/live", { authorization = "Bearer " .. token }).status)
  end)

  it("is not shown by a name that may be anybody's", function()
    assert.equal(403, document({ host = "evil.example" }).status)
    assert.equal(403, get("/live", { host = "evil.example" }).status)
  end)

  it("is not there where the host has none", function()
    pages.live = nil
    assert.equal("text/plain; charset=utf-8", document().type)
    assert.equal(501, get("/live").status)
  end)
end)
