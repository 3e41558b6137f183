local cmd = require "neap.cmd"
local json = require "neap.cmd.json"

local files

local function write(name, text)
  local path = files .. "/" .. name
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

--- Runs the command: its status or plan, and what it said.
local function run(argv, host)
  local out, err = {}, {}
  host = host or {}
  local result = cmd.main(argv, {
    version = "1.2.3",
    wall_ms = function() return 1796000000123 end,
    uptime_ms = function() return 4567 end,
    is_terminal = function() return host.is_terminal or false end,
    env = function(name) return host.env and host.env[name] end,
    out = function(text) out[#out + 1] = text end,
    err = function(text) err[#err + 1] = text end,
  })
  return result, table.concat(out), table.concat(err)
end

setup(function()
  files = os.tmpname()
  os.remove(files)
  assert(os.execute("mkdir " .. files))
end)

teardown(function() os.execute("rm -r " .. files) end)

local POLICY = [[
return {
  name = "NAME",
  trip = { failures = 5 },
  timeout_ms = 500,
}
]]

local function policy(name) return write(name .. ".lua", (POLICY:gsub("NAME", name))) end

local SERVE = { "serve", "--upstream", "http://127.0.0.1:8016", "--policy", "p/flags.lua" }

--- SERVE and more.
local function serve(...)
  local argv = { table.unpack(SERVE) }
  for _, word in ipairs { ... } do argv[#argv + 1] = word end
  return run(argv)
end

describe("neap", function()
  it("says how it is used when it is told nothing, and that this is an error", function()
    local status, out, err = run {}
    assert.equal(2, status)
    assert.equal("", out)
    assert.is_truthy(err:find("neap serve --upstream URL", 1, true))
  end)

  it("says which it is", function()
    local status, out = run { "--version" }
    assert.equal(0, status)
    assert.equal("neap 1.2.3\n", out)
  end)

  for _, argv in ipairs { { "--help" }, { "-h" }, { "help" }, { "serve", "--help" },
    { "serve", "-h" }, { "check", "--help" },
    { "help", "serve" }, { "help", "check" }, { "serve", "--listen", ":1", "--help" } } do
    it("teaches with examples: neap " .. table.concat(argv, " "), function()
      local status, out, err = run(argv)
      assert.equal(0, status)
      assert.equal("", err)
      assert.is_truthy(out:find("\n  neap serve ", 1, true) or out:find("\n  neap check ", 1, true))
      for line in out:gmatch("[^\n]+") do assert.is_true(#line <= 110, line) end
    end)
  end

  it("has every option of serve in its help", function()
    local _, out = run { "serve", "--help" }
    for _, option in ipairs(require("neap.cmd.plan").options) do
      assert.is_truthy(out:find("  --" .. option.name .. " ", 1, true), option.name)
    end
  end)

  it("names every key of a configuration file in the help of serve", function()
    local _, out = run { "serve", "--help" }
    local _, _, err = run { "serve",
      write("odd.lua", "return { zzzzzz = 1, routes = { { zzzzzz = 1 } } }") }
    local count = 0
    for names in err:gmatch("; there are ([^\n]+)") do
      for name in names:gmatch("[%w_]+") do
        assert.is_truthy(out:find(name, 1, true), name)
        count = count + 1
      end
    end
    assert.equal(25, count)
  end)

  for word, near in pairs { serv = "neap serve", chekc = "neap check",
    ["--versoin"] = "neap --version" } do
    it(("asks whether %s was meant for %s"):format(near, word), function()
      local status, _, err = run { word }
      assert.equal(2, status)
      assert.equal(("neap: there is no command %q; did you mean %s? See neap --help\n")
        :format(word, near), err)
    end)
  end
end)

describe("neap serve, told wrong,", function()
  for _, case in ipairs {
    -- arguments                            what is said
    { { "--listen" },                       "--listen needs a value, e.g. 127.0.0.1:8080" },
    { { "--listen", "" },                   "--listen needs a value, e.g. 127.0.0.1:8080" },
    { { "--listen", "8080" },               "--listen 8080: must be ADDRESS:PORT" },
    { { "--listen", "localhost" },          "--listen localhost: must be ADDRESS:PORT" },
    { { "--listen", "example.com:80" },     "a name is not looked up here" },
    { { "--listen", "127.0.0.1:65536" },    "the port must be 0 to 65535" },
    { { "--listen", "127.0.0.256:80" },     "must be ADDRESS:PORT" },
    { { "--listen", "::1:80" },             "must be ADDRESS:PORT" },
    { { "--listen=127.0.0.1:1", "--listen=127.0.0.1:2" }, "--listen is given twice" },
    { { "--admin", "yes" },
      "--admin yes: must be ADDRESS:PORT, e.g. 127.0.0.1:8080 or [::1]:8080; or off" },
    { { "--lisen", "127.0.0.1:1" },         "unknown option --lisen; did you mean --listen?" },
    { { "--frobnicate" },                   "unknown option --frobnicate;" },
    { { "-l", "127.0.0.1:1" },              "unknown option -l; options begin with two dashes" },
    { { "--log-format", "jsno" },
      "--log-format jsno: must be text or json: did you mean json?" },
    { { "--drain-ms", "10s" },
      "--drain-ms 10s: must be a whole number of ms, 0 to 3600000" },
    { { "--drain-ms", "-1" },
      "--drain-ms -1: must be a whole number of ms, 0 to 3600000" },
    { { "--drain-ms", "1e99" },             "must be a whole number of ms" },
    { { "--max-breakers", "0" },
      "--max-breakers 0: must be a whole number, 1 to 4194304" },
    { { "--webhook", "ftp://x/" },          "ftp://x/: must begin with http:// or https://" },
    { { "--webhook", "hooks" },             "--webhook hooks: must be a URL" },
    { { "--webhook", "http://a:b@x/" },     "must not carry a user name or password" },
    { { "--webhook", "http://x/a b" },      "must have no blank and no # in it" },
    { { "--webhook", "http://x/#a" },       "must have no blank and no # in it" },
    { { "--webhook", "http://x:0/" },       "the port must be 1 to 65535" },
    { { "edge.lua" },                       "give either a configuration file or --upstream" },
    { { "--policy", "policies" },           "--policy policies: must be a policy file, *.lua" },
  } do
    it(("says so: %s"):format(table.concat(case[1], " ")), function()
      local status, out, err = serve(table.unpack(case[1]))
      assert.equal(2, status)
      assert.equal("", out)
      assert.is_truthy(err:find(case[2], 1, true), err)
      local ends = case[2]:find("%?$") and "? See" or "; see"
      assert.is_truthy(err:find("^neap serve: [^\n]+" .. ends .. " neap serve %-%-help\n$"), err)
    end)
  end

  for url, expected in pairs {
    ["127.0.0.1:8016"] = "must be a URL", ["ftp://a"] = "must begin with http:// or https://",
    ["http://"] = "must name a host", ["http://a b"] = "must name a host",
      ["http://a:0"] = "the port must be 1 to 65535",
    ["http://a:99999"] = "the port must be 1 to 65535", ["http://a:"] = "has a colon but no port",
    ["http://u:p@a"] = "must not carry a user name", ["http://a/x"] = "must end after the host",
    ["http://a?x"] = "must end after the host", ["http:/a"] = "must be a URL",
  } do
    it(("refuses the upstream %s"):format(url), function()
      local status, _, err = run { "serve", "--policy", "p/flags.lua", "--upstream", url }
      assert.equal(2, status)
      assert.is_truthy(err:find(("--upstream %s: %s"):format(url, expected), 1, true), err)
    end)
  end

  it("says what is missing", function()
    assert.is_truthy(select(3,
      run { "serve" }):find("--upstream is missing, e.g. --upstream http://127.0.0.1:8016", 1,
        true))
    local _, _, err = run { "serve", "--upstream", "http://a" }
    assert.is_truthy(err:find("--policy is missing, e.g. --policy policies/http_upstream.lua", 1,
      true))
  end)

  for _, case in ipairs {
    -- listen         upstream                 a loop
    { "127.0.0.1:80", "http://127.0.0.1:80",   true },
    { "127.0.0.1:80", "http://localhost",      true },
    { ":80",          "http://127.0.0.2:80",   true },
    { "[::1]:80",     "http://[::1]:80",       true },
    { "[::]:80",      "http://localhost:80",   true },
    { "127.0.0.1:80", "http://127.0.0.1:81",   false },
    { "127.0.0.1:80", "http://10.0.0.1:80",    false },
    { ":80",          "http://10.0.0.1:80",    false },
  } do
    it(("%s %s for the upstream of %s"):format(case[3] and "refuses" or "takes", case[2], case[1]),
      function()
      local plan, _, err = run { "serve", "--listen", case[1], "--upstream", case[2],
        "--policy", "p/flags.lua" }
      if not case[3] then return assert.equal(case[2], plan.routes[1].upstream) end
      assert.equal(1, plan)
      assert.equal(("neap serve: upstream %s and listen %s are one address: a request would come "
        .. "back for ever\n"):format(case[2], case[1]), err)
    end)
  end

  it("does not open its admin pages to others without a token", function()
    for _, where in ipairs { ":9464", "0.0.0.0:9464", "[::]:9464", "192.168.1.2:9464" } do
      local status, _, err = serve("--admin", where)
      assert.equal(1, status)
      local expected = "neap serve: admin %s: others can reach that; give --admin-token-file FILE"
      assert.is_truthy(err:find(expected:format(where), 1, true))
      assert.is_table((serve("--admin", where, "--admin-token-file", "t")))
    end
  end)
end)

describe("neap serve", function()
  for _, case in ipairs {
    -- listen              admin               which
    { "127.0.0.1:8080",    "127.0.0.1:8080",   "clash: the same" },
    { "127.0.0.1:9464",    nil,                "clash: the default admin" },
    { nil,                 "localhost:8080",   "clash: a name for the default listen" },
    { ":8080",             "127.0.0.1:8080",   "clash: every address is this, too" },
    { "[::]:8080",         "127.0.0.1:8080",   "clash: of either kind" },
    { "[::]:8080",         "[::1]:8080",       "clash: every address is this one, too" },
    { "[::1]:8080",        "127.0.0.1:8080",   "are two: of two kinds" },
    { ":8080",             "[::1]:8080",       "are two: 0.0.0.0 is every address of its kind" },
    { "127.0.0.1:8080",    "127.0.0.2:8080",   "are two addresses" },
    { "127.0.0.1:8080",    "127.0.0.1:8081",   "are two ports" },
    { "127.0.0.1:0",       "127.0.0.1:0",      "are two: any free port each" },
    { "127.0.0.1:9464",    "off",              "are one" },
  } do
    local clashes = case[3]:find("^clash") ~= nil
    it(("listens on %s and has its admin on %s: these %s"):format(case[1] or "the default",
      case[2] or "the default", case[3]), function()
      local argv = {}
      if case[1] then argv = { "--listen", case[1] } end
      for _, word in ipairs(case[2] and { "--admin", case[2] } or {}) do argv[#argv + 1] = word end
      local plan, _, err = serve(table.unpack(argv))
      if not clashes then return assert.is_table(plan, err) end
      assert.equal(1, plan)
      local expected = "neap serve: admin %s and listen %s are one address; give one of them "
        .. "another port\n"
      assert.equal(expected:format(case[2] or "127.0.0.1:9464", case[1] or "127.0.0.1:8080"), err)
    end)
  end

  it("has defaults for all but the upstream and the policy", function()
    local plan = run(SERVE)
    assert.same({ "127.0.0.1", 8080 }, { plan.listen.host, plan.listen.port })
    assert.same({ "127.0.0.1", 9464 }, { plan.admin.host, plan.admin.port })
    assert.same({ "p/flags.lua" }, plan.policies)
    assert.equal(10000, plan.drain_ms)
    assert.equal("text", plan.log_format)
    assert.same({
      name = "default", key = "default", prefix = "/", upstream = "http://127.0.0.1:8016",
      upstream_host = "127.0.0.1", upstream_port = "8016", policy = "flags",
    }, plan.routes[1])
  end)

  it("understands the usual ways of writing an address", function()
    for text, host in pairs { ["[::1]:80"] = "::1", ["localhost:80"] = "127.0.0.1",
      [":80"] = "0.0.0.0", ["127.0.0.1:80"] = "127.0.0.1" } do
      local plan = serve("--listen=" .. text)
      assert.same({ host, 80 }, { plan.listen.host, plan.listen.port })
    end
    assert.is_false(serve("--admin", "off").admin)
  end)

  for url, parts in pairs {
    ["http://a"] = { "http://a", "a", "80" },
      ["https://a.b-c.d"] = { "https://a.b-c.d", "a.b-c.d", "443" },
    ["HTTP://a:81/"] = { "http://a:81", "a", "81" },
      ["http://[::1]:81"] = { "http://[::1]:81", "::1", "81" },
  } do
    it(("takes %s for an upstream"):format(url), function()
      local route = run({ "serve", "--policy", "p/flags.lua", "--upstream", url }).routes[1]
      assert.same(parts, { route.upstream, route.upstream_host, route.upstream_port })
    end)
  end

  it("takes further policies for fallbacks", function()
    local plan = serve("--policy", "p/replica.lua")
    assert.same({ "p/flags.lua", "p/replica.lua" }, plan.policies)
    assert.equal("flags", plan.routes[1].policy)
  end)
end)

describe("a configuration file", function()
  local GOOD = [[
return {
  listen = "127.0.0.1:8081",
  log_format = "json",
  policies = { "policies" },
  routes = {
    { name = "all", upstream = "http://a", policy = "http_upstream" },
    { name = "flags", prefix = "/flags", upstream = "http://b", policy = "policies/flags.lua" },
    { name = "deep", prefix = "/flags/in", key = "flags", upstream = "http://b", policy = "flags" },
    { name = "pay", host = "Pay.Internal", upstream = "https://c", policy = "payments",
      http2 = true, connect_ms = 500 },
  },
}
]]

  it("has several routes, the more particular first", function()
    local plan = run { "serve", write("good.lua", GOOD), "--drain-ms", "5" }
    local names = {}
    for i, route in ipairs(plan.routes) do names[i] = route.name end
    assert.same({ "pay", "deep", "flags", "all" }, names)
    assert.same({ "policies", "policies/flags.lua" }, plan.policies)
    assert.equal("pay.internal", plan.routes[1].host)
    assert.equal("flags", plan.routes[2].key)
    assert.equal("flags", plan.routes[3].policy)
    assert.equal("json", plan.log_format)
    assert.equal(5, plan.drain_ms)
  end)

  it("has a webhook", function()
    local text = GOOD:gsub("  log_format", '  webhook = "HTTPS://hooks.example.com:8443?team=a",\n'
      .. '  webhook_token_file = "/run/secrets/webhook",\n%0')
    local plan = run { "serve", write("hook.lua", text) }
    assert.same({ "https://hooks.example.com:8443", "hooks.example.com:8443", "/?team=a" },
      { plan.webhook.origin, plan.webhook.host, plan.webhook.target })
    assert.equal("/run/secrets/webhook", plan.webhook_token_file)
  end)

  it("has routes that only other policies' fallbacks use", function()
    local second = '    { name = "second", policy = "http_upstream", upstream = "http://r", '
      .. 'prefix = false },\n'
    local text = GOOD:gsub('    { name = "pay"', second .. "%0")
    local plan = run { "serve", write("replica.lua", text) }
    local serves = {}
    for i, route in ipairs(plan.routes) do
      serves[i] = route.name .. " " .. tostring(route.serves)
    end
    assert.same({ "pay true", "deep nil", "flags nil", "all nil", "second true" }, serves)
    assert.is_false(plan.routes[5].prefix)
  end)

  it("is like the one in examples/demo", function()
    local plan, _, err = run { "serve", "examples/demo/routes.lua" }
    assert.equal("", err)
    assert.same({ "www.example.com", "/flags" }, { plan.routes[1].host, plan.routes[2].prefix })
  end)

  it("stands back behind the command line", function()
    local plan = run { "serve", write("good.lua", GOOD), "--listen", "127.0.0.1:1", "--log-format",
      "text" }
    assert.same({ 1, "text" }, { plan.listen.port, plan.log_format })
  end)

  for _, case in ipairs {
    -- what is replaced                 by what                     what is said
    { 'name = "all", ',                 "",
      "6: routes[1].name: is missing" },
    { 'policy = "http_upstream"',       "",
      "6: routes[1].policy: is missing" },
    { 'upstream = "http://a"',          'upstrem = "http://a"',
      "6: routes[1].upstrem: is not a key: did you mean upstream?" },
    { 'upstream = "http://a"',          'upstream = "a"',
      '6: routes[1].upstream: "a": must be a URL' },
    { 'policy = "http_upstream"',       'policy = "htp_upstream"',
      '6: routes[1].policy: "htp_upstream": there is no such policy: did you mean http_upstream?' },
    { 'policy = "payments"',            'policy = "x"',
      '9: routes[4].policy: "x": there is no such policy; there are flag_provider, grpc_service,' },
    { 'upstream = "http://a"',          "upstream = 5",
      "6: routes[1].upstream: 5: must be a text" },
    { 'prefix = "/flags",',             'prefix = "flags",',
      '7: routes[2].prefix: "flags": must be a path that begins with /' },
    { 'prefix = "/flags",',             'prefix = false, host = "a",',
      "7: routes[2].host: prefix = false: it takes no requests, whatever their host" },
    { 'policy = "http_upstream" },',    'policy = "http_upstream", prefix = false },\n'
      .. '{ name = "re", policy = "http_upstream", upstream = "http://a", prefix = false },',
      "7: routes[2].prefix: false: route all is for fallbacks on http_upstream, too; " },
    { 'prefix = "/flags/in"',           'prefix = "/flags"',
      "8: routes[3]: route flags is for the same host and prefix" },
    { 'name = "deep"',                  'name = "flags"',
      '8: routes[3].name: "flags" is the name of another route, too' },
    { 'host = "Pay.Internal"',          'host = "pay:80"',
      '9: routes[4].host: "pay:80": must be a host name without a port' },
    { "http2 = true",                   'http2 = "yes"',
      '10: routes[4].http2: "yes": must be true or false' },
    { "connect_ms = 500",               "connect_ms = 0.5",
      "10: routes[4].connect_ms: 0.5: must be a whole number of ms, 1 to 3600000" },
    { '"json"',                         '"jsn"',
      '3: log_format: "jsn": must be text or json: did you mean json?' },
    { "listen",                         "lisen",
      "2: lisen: is not a key: did you mean listen?" },
    { '"127.0.0.1:8081"',               "8081",
      '2: listen: 8081: must be a text such as "127.0.0.1:8080"' },
    { '{ "policies" }',                 "{}",
      "4: policies: a table: must be a list of policy files and directories" },
    { "routes = {",                     "routs = {",
      "5: routs: is not a key: did you mean routes?" },
    { "return {",                       "local x = {",              " returns a nil, not a table" },
    { "return {.*",                     "return 5",
      " returns a number, not a table { routes = … }" },
    { "return {",                       "return { routes = os.x,",
      "1: os is not known here: this file is a table { routes = … }" },
  } do
    it(("with %s for %s is refused with the place"):format(case[2], case[1]), function()
      local from = case[1]:gsub("[%-%[%]%(%)%.%%]", "%%%0"):gsub("%%%.%*", ".*")
      if not case[1]:find(".*", 1, true) then from = case[1]:gsub("%p", "%%%0") end
      local path = write("bad.lua", (GOOD:gsub(from, (case[2]:gsub("%%", "%%%%")), 1)))
      local status, _, err = run { "serve", path }
      assert.equal(1, status)
      assert.is_truthy(err:find("neap serve: " .. path .. ":" .. case[3], 1, true), err)
    end)
  end

  it("has all its mistakes told at once, in the order of its lines", function()
    local text = GOOD:gsub('"http://a"', '"a"'):gsub('"json"', '"jsn"'):gsub("http2 = true",
      "http2 = 1")
    local _, _, err = run { "serve", write("bad.lua", text) }
    local places = {}
    for line in err:gmatch("bad%.lua:(%d+)") do places[#places + 1] = line end
    assert.same({ "3", "6", "10" }, places)
  end)

  it("must be there, and only once", function()
    local status, _, err = run { "serve", files .. "/none.lua" }
    assert.equal(1, status)
    assert.equal(("neap serve: %s/none.lua: No such file or directory\n"):format(files), err)
    status, _, err = run { "serve", "a.lua", "b.lua" }
    assert.equal(2, status)
    assert.is_truthy(err:find("b.lua: there can be only one configuration file", 1, true))
  end)
end)

describe("neap check", function()
  it("prints the effective configuration, with units, and says which are defaults", function()
    local status, out, err = run { "check", policy("flags") }
    assert.equal(0, status)
    assert.equal("", err)
    assert.is_truthy(out:find("flags.lua: ok  %x+\n"), out)
    assert.is_truthy(out:find("\n  trip.failures         5\n", 1, true), out)
    assert.is_truthy(out:find("\n  timeout_ms            500 ms\n", 1, true), out)
    assert.is_truthy(out:find("\n  open.cooldown_ms      5000 ms (5 s)    ", 1, true), out)
    assert.is_truthy(out:find("\n  open.cooldown_ms [^\n]* default\n"), out)
    assert.is_truthy(out:find("\n  open.jitter [^\n]*0%.2 %(20 %%%)%s+default\n"), out)
  end)

  it("says what is wrong, where, in what, and what would be right", function()
    local path = write("bad.lua",
      'return {\n  name = "bad",\n  trip = { failure_rate = 50 },\n  opne = {},\n}\n')
    local status, out, err = run { "check", path }
    assert.equal(1, status)
    assert.equal("", out)
    assert.is_truthy(err:find("error: " .. path .. ":3: trip.failure_rate: 50 is out of range", 1,
      true), err)
    assert.is_truthy(err:find("error: " .. path .. ":4: opne: is not a key: did you mean open?", 1,
      true), err)
  end)

  it("prints what is good beside what is wrong", function()
    local path = write("bad.lua", "return {")
    local status, out, err = run { "check", policy("flags"), path }
    assert.equal(1, status)
    assert.is_truthy(out:find("flags.lua: ok", 1, true))
    assert.is_truthy(err:find("error: " .. path .. ":1: ", 1, true), err)
  end)

  it("takes a directory for the policies in it", function()
    local status, out = run { "check", "policies" }
    assert.equal(0, status)
    for _, name in ipairs { "flag_provider", "payments", "http_upstream" } do
      assert.is_truthy(out:find(("policies/%s.lua: ok"):format(name), 1, true))
    end
  end)

  it("is not content with nothing", function()
    os.execute("mkdir -p " .. files .. "/empty")
    local status, _, err = run { "check", files .. "/empty" }
    assert.equal(1, status)
    assert.is_truthy(err:find("error: " .. files .. "/empty: has no policy file (*.lua)", 1, true),
      err)
    status, _, err = run { "check", files .. "/none.lua" }
    assert.equal(1, status)
    assert.is_truthy(err:find("none.lua: No such file or directory", 1, true), err)
    status, _, err = run { "check" }
    assert.equal(2, status)
    assert.is_truthy(err:find("which policies? Name files or directories, e.g. neap check policies",
      1, true))
    assert.equal(2, (run { "check", "--jsn", "policies" }))
  end)

  it("has two files of one name refused, as serve does", function()
    os.execute("mkdir -p " .. files .. "/two/again")
    local one = policy("flags")
    local other = write("two/flags.lua", (POLICY:gsub("NAME", "flags")))
    local status, _, err = run { "check", one, other }
    assert.equal(1, status)
    assert.equal(("error: %s: there is a policy flags already, in %s\n"):format(other, one), err)
    local third = write("two/again/flags.lua", (POLICY:gsub("NAME", "flags")))
    local told = select(3, run { "check", one, other, third })
    assert.is_truthy(told:find(("%s: there is a policy flags already, in %s\n"):format(third, one),
      1, true), told)
    assert.equal(0, (run { "check", one, one }))
  end)

  it("misses a fallback's policy in a directory, and warns of it for a file", function()
    os.execute("mkdir -p " .. files .. "/set")
    local path = write("set/asks.lua", [[return {
  name = "asks", trip = { failures = 5 },
  fallback = {
    fallback.guard("replca"),
  },
}]])
    write("set/replica.lua", (POLICY:gsub("NAME", "replica")))
    local fault = path .. ":4: fallback[1]: fallback.guard: there is no policy \"replca\""
    local status, out = run { "check", path }
    assert.equal(0, status)
    assert.is_truthy(out:find("warning: " .. fault .. " among these files\n", 1, true), out)
    local failed, _, err = run { "check", files .. "/set" }
    assert.equal(1, failed)
    assert.equal("error: " .. fault .. ": did you mean replica?\n", err)
    write("set/replca.lua", (POLICY:gsub("NAME", "replca")))
    assert.equal(0, (run { "check", files .. "/set" }))
  end)

  it("says the same as JSON", function()
    local status, out = run { "check", "--json", policy("flags"),
      write("bad.lua", 'return { name = "bad" }') }
    assert.equal(1, status)
    local report = assert(json.decode(out))
    assert.is_false(report.ok)
    assert.equal("flags", report.policies[1].name)
    assert.equal(5, report.policies[1].config.trip.failures)
    assert.equal(500, report.policies[1].config.timeout_ms)
    assert.equal("trip", report.errors[1].key)
    assert.equal(1, report.errors[1].line)
    assert.is_truthy(report.errors[1].text:find("bad.lua:1: trip: is missing", 1, true))
  end)

  it("says so in JSON too when there is nothing wrong, with lists that are lists", function()
    local status, out = run { "check", "--json", policy("flags") }
    assert.equal(0, status)
    assert.is_truthy(out:find('"errors": []', 1, true))
    assert.is_truthy(out:find('"fallback": []', 1, true))
    assert.is_true(json.decode(out).ok)
  end)

  it("uses the params of the deployment", function()
    local path = write("needs.lua",
      'return { name = "needs", trip = { failures = params.failures } }')
    local params = write("params.lua", "return { needs = { failures = 7 } }")
    local status, out = run { "check", path, "--params", params }
    assert.equal(0, status)
    assert.is_truthy(out:find("trip.failures         7\n", 1, true), out)
    assert.equal(1, (run { "check", path }))
  end)

  local DECLARES = [[
params.declare {
  failures = { type = "whole", min = 1, max = 100, default = 5, doc = "in a row" },
  pause_ms = { type = "ms" },
}
return { name = "declares", trip = { failures = params.failures } }
]]

  it("shows what is declared of params, their values, and where each is from", function()
    local path = write("declares.lua", DECLARES)
    local base = write("base.lua", "return { declares = { failures = 7, pause_ms = 1000 } }")
    local prod = write("prod.lua", "return {\n  declares = { failures = 8 } }")
    local status, out = run { "check", path, "--params", base, "--params", prod }
    assert.equal(0, status)
    assert.is_truthy(out:find("  params.failures  +8  +a whole number from 1 to 100; default 5; "
      .. "from " .. prod .. ":2  # in a row\n"), out)
    assert.is_truthy(out:find("  params.pause_ms  +1000 ms %(1 s%)  +a whole number of "
      .. "milliseconds, 0 or more; no default; from " .. base .. ":1\n"), out)
    status, out = run { "check", path, "--json", "--params", base }
    assert.equal(0, status)
    assert.same({
      { name = "failures", type = "whole", min = 1, max = 100, default = 5, doc = "in a row",
        value = 7, takes = "a whole number from 1 to 100", from = base .. ":1" },
      { name = "pause_ms", type = "ms", value = 1000,
        takes = "a whole number of milliseconds, 0 or more", from = base .. ":1" },
    }, json.decode(out).policies[1].parameters)
    assert.is_truthy(select(2, run { "check", path }):find("  params.pause_ms  +not set  +a whole"))
  end)

  it("is 1 if what it says can't be written", function()
    local path = write("declares.lua", DECLARES)
    for where, why in pairs { ["/dev/full"] = "No space left on device", ["&-"] =
      "Bad file descriptor" } do
      local pipe = io.popen(("{ '%s' check %s 2>&3 >%s; echo $? >&3; } 3>&1"):format(
        os.getenv "NEAP_BIN", path, where))
      local text = pipe:read "*a"
      pipe:close()
      assert.equal("neap: standard output: " .. why .. "\n1\n", text)
    end
  end)

  it("goes by the environment as serve does", function()
    local path = write("declares.lua", DECLARES)
    local neap = ("NEAP_PARAM_DECLARES__FAILURES=%s '%s' check %s 2>&1")
    local function said(value)
      local pipe = io.popen(neap:format(value, os.getenv "NEAP_BIN", path))
      local text = pipe:read "a"
      pipe:close()
      return text
    end
    assert.is_truthy(said(9):find("params.failures  +9  .*; from NEAP_PARAM_DECLARES__FAILURES"))
    assert.equal("error: NEAP_PARAM_DECLARES__FAILURES: 0 is out of range: a whole number from 1 "
      .. "to 100\n", said(0))
  end)

  it("checks a policy's shadow with it", function()
    assert(os.execute("mkdir -p " .. files .. "/next"))
    local path = write("tried.lua",
      'return { name = "tried", shadow = "next/tried.lua", trip = { failures = 5 } }')
    write("next/tried.lua", 'return { name = "tried", trip = { failures = 3 } }')
    local status, out, err = run { "check", path }
    assert.same({ 0, "" }, { status, err })
    assert.is_truthy(out:find("  shadow  +next/tried.lua\n"))
    write("next/tried.lua", 'return { name = "tried",\n  trip = { failurs = 3 } }')
    status, out, err = run { "check", path }
    assert.equal(1, status)
    assert.is_truthy(out:find("tried.lua: ok", 1, true))
    assert.equal("error: " .. files .. "/next/tried.lua:2: trip.failurs: is not a key: did you "
      .. "mean failures?\n", err)
  end)

  it("finds a fallback.guard wrong whose policy does not load", function()
    local dir = files .. "/guarded"
    assert(os.execute("mkdir -p " .. dir))
    write("guarded/a.lua", 'return { name = "a", trip = { failures = 5 },\n'
      .. '  fallback = { fallback.guard("b") } }')
    write("guarded/b.lua", "oops")
    local status, _, err = run { "check", dir }
    assert.equal(1, status)
    assert.is_truthy(err:find('a.lua:2: fallback[1]: fallback.guard: there is no policy "b"', 1,
      true),
      err)
  end)

  it("says where params are wrong, and when they are for nobody, as serve does", function()
    local path = policy("flags")
    local status, _, err = run { "check", path, "--params",
      write("params.lua", "return {\n  flags = 5 }") }
    assert.equal(1, status)
    assert.is_truthy(err:find("params.lua", 1, true))
    status, _, err = run { "check", path, "--params", write("params.lua",
      "return {\n  flags = {},\n  flasg = {} }") }
    assert.equal(1, status)
    assert.is_truthy(err:find("params.lua:3: flasg: there is no such policy: did you mean flags?",
      1, true), err)
    assert.equal(1, (run { "check", path, "--params", files .. "/none.lua" }))
  end)

  it("has colours on a terminal, unless they are not wanted", function()
    local path = policy("flags")
    local function colours(host) return select(2, run({ "check", path }, host)):find("\27", 1,
      true) ~= nil end
    assert.is_true(colours { is_terminal = true })
    assert.is_false(colours { is_terminal = false })
    assert.is_false(colours { is_terminal = true, env = { NO_COLOR = "1" } })
    assert.is_true(colours { is_terminal = true, env = { NO_COLOR = "" } })
    assert.is_false(colours { is_terminal = true, env = { TERM = "dumb" } })
  end)

  for verdict, statuses in pairs {
    failure = { failure = "status 429, 500-599", neutral = "status 400-428, 430-499" },
    neutral = { failure = "status 500-599", neutral = "status 400-499" },
  } do
    it(("says what counts as what: with 429 a %s in the file, not in the engine (B077)")
      :format(verdict), function()
      local path = write("counts.lua", ('return { name = "counts", trip = { failures = 5 }, '
        .. "classify = function(call) if call.status == 429 then return %q end "
        .. "return classify.http(call) end }"):format(verdict))
      local status, out = run { "check", path }
      assert.equal(0, status)
      assert.is_truthy(out:find("counted as success +status 200%-399\n"), out)
      for outcome, line in pairs(statuses) do
        local row = out:match("counted as " .. outcome .. " +([^;]+);")
        assert.equal(line, row)
      end
    end)
  end

  it("prints what counts as what without a classify of the policy's own (B077)", function()
    local _, out = run { "check", policy("flags") }
    assert.is_truthy(out:find("counted as failure +status 429, 500%-599; timeout, transport;"), out)
    assert.is_truthy(out:find("; caller, bulkhead; code FLAG_NOT_FOUND, ", 1, true), out)
    assert.is_truthy(out:find("gRPC DATA_LOSS, DEADLINE_EXCEEDED, INTERNAL, ", 1, true), out)
    local _, text = run { "check", "--json", policy("flags") }
    local verdicts = json.decode(text).policies[1].verdicts
    assert.same({ "429", "500-599" }, verdicts.failure.status)
    assert.same({ "caller", "bulkhead" }, verdicts.neutral.ended_by)
  end)

  it("leaves out codes that a policy does not look at", function()
    local path = write("http.lua", 'return { name = "http", trip = { failures = 5 }, '
      .. "classify = classify.http }")
    local _, out = run { "check", path }
    assert.is_nil(out:find("FLAG_NOT_FOUND", 1, true))
    assert.is_nil(out:find("gRPC", 1, true))
  end)
end)

describe("the log", function()
  local function lines_of(format, level, message, fields, event)
    local out = {}
    require("neap.cmd.log").open({
      format = format, write = function(line) out[#out + 1] = line end,
      wall_ms = function() return 1796000000123 end, uptime_ms = function() return 4567 end,
    }):line(level, event or "test", message, fields)
    return table.concat(out)
  end

  it("has one line with the time of day and a time that never jumps", function()
    assert.equal("2026-11-30T00:53:20.123Z 4.567 info   test  hello  n=5 t=x\n",
      lines_of("text", "info", "hello", { { "n", 5 }, { "t", "x" } }))
  end)

  it("says nothing twice: what a transition's sentence has is a field in JSON only", function()
    local fields = {
      { "policy", "flags" }, { "key", "default" }, { "from", "closed" }, { "to", "open" },
      { "reason", "failures" }, { "measured", 5 }, { "limit", 5 }, { "calls", 5 },
      { "open_ms", 5000 }, { "level", 1 }, { "epoch", 3 }, { "policy_hash", "0123" },
    }
    for _, event in ipairs { "transition", "shadow" } do
      local text = lines_of("text", "warn", "flags/default: closed -> open: …", fields, event)
      assert.equal("  flags/default: closed -> open: …  epoch=3 policy_hash=0123\n",
        text:match("  flags.*"))
      local value = json.decode(lines_of("json", "warn", "flags/default: …", fields, event))
      assert.same({ "open", "failures", 5, 3 },
        { value.to, value.reason, value.measured, value.epoch })
    end
  end)

  it("says the same in JSON (B164)", function()
    local line = lines_of("json", "warn", "hello",
      { { "measured", 5 }, { "key", 'a"b' }, { "on", true } })
    assert.equal("\n", line:sub(-1))
    assert.same({ time = "2026-11-30T00:53:20.123Z", uptime = 4.567, level = "warn", event = "test",
      message = "hello",
      measured = 5, key = 'a"b', on = true }, json.decode(line))
  end)

  for _, text in ipairs { "a\nb", "a\r\27[31mb", "\0", "\255\254", 'a "b" = c', "" } do
    it(("keeps a line a line: %q"):format(text), function()
      for _, format in ipairs { "text", "json" } do
        local line = lines_of(format, "info", text, { { "key", text } })
        assert.equal(1, select(2, line:gsub("\n", "")))
        assert.is_nil(line:sub(1, -2):find("[%c\127]"))
        if format == "json" then assert.is_table(json.decode(line)) end
      end
    end)
  end
end)
