--- neap status, mode, trip, reset and params, against the admin pages of guards that are here.

local admin = require "neap.admin"
local cmd = require "neap.cmd"
local guards = require "tests.support.guards"
local json = require "neap.cmd.json"

local flags, pay, shop, clock, pages, asked, policies, out, err, files, strange

local function fetch(method, url, token, body)
  local target = url:match "^http://127%.0%.0%.1:9464(/.*)$"
  if not target then return nil, "Failed to connect" end
  if strange then return strange[1], strange[2] end
  asked[#asked + 1] = method .. " " .. target
  local answer = pages:handle {
    method = method, target = target, body = body, peer = "127.0.0.1",
    headers = { host = "127.0.0.1:9464", authorization = token and "Bearer " .. token },
  }
  if type(answer.body) == "function" then
    local parts = {}
    for part in answer.body do parts[#parts + 1] = part end
    answer.body = table.concat(parts)
  end
  return answer.status, answer.body
end

--- Runs the command, where "~" is a blank within a word: its exit status.
local function neap(line, host)
  local argv = {}
  for word in line:gmatch "%S+" do argv[#argv + 1] = (word:gsub("~", " ")) end
  host = host or {}
  out, err = "", ""
  return cmd.main(argv, {
    version = "1.2.3", is_terminal = function() return host.is_terminal or false end,
    env = function(name) return (host.env or { USER = "ann" })[name] end,
    out = function(text) out = out .. text end, err = function(text) err = err .. text end,
    fetch = fetch,
  })
end

local function says(text) assert.is_truthy(out:find(text, 1, true), out) end
local function complains(text) assert.is_truthy(err:find(text, 1, true), err) end

before_each(function()
  flags, clock = guards.new("flags")
  pay = guards.new("pay", { clock = clock })
  asked, strange, shop = {}, nil, nil
  policies = {
    { name = "flags", path = "p/flags.lua", hash = "0123", is_gone = false, is_orphaned = false,
      reloads = 0, failures = 0 },
  }
  pages = admin.open {
    guards = function() return { flags = flags, pay = pay, shop = shop } end,
    policies = function() return policies end,
    since = function(ms) return ("12:%02.0f"):format(ms / 1000 % 60) end,
  }
end)

local function fail(guard, key)
  for _ = 1, 5 do guards.call(guard, 500, 1, key) end
end

describe("neap status", function()
  it("has a line for each breaker, and 0 to say that all are closed", function()
    guards.call(flags, 200)
    guards.call(flags, 200, 1, "eu")
    guards.call(flags, 200, 1, "eu")
    assert.equal(0, neap "status")
    assert.equal(table.concat({
      "flags/default  closed  1 call, 0 % failed   has not moved since the start",
      "flags/eu       closed  2 calls, 0 % failed  has not moved since the start",
      "pay/default    closed  no calls             has not moved since the start", "",
    }, "\n"), out)
  end)

  it("has its columns below each other, however wide a key's letters are", function()
    for _, key in ipairs { "料金", "e\204\129", "🚀" } do guards.call(flags, 200, 1, key) end
    neap "status flags"
    for _, line in ipairs { "flags/default  closed", "flags/e\204\129        closed",
      "flags/料金     closed", "flags/🚀       closed" } do
      says(line)
    end
  end)

  it("says what is open, since when, why and until when, and is 1 then", function()
    fail(flags)
    assert.equal(1, neap "status")
    says "flags/default  open "
    says "12:40 closed -> open"
    says "\n  lets a call through in "
    assert.equal(0, neap "status pay")
    assert.equal("pay/default  closed  no calls  has not moved since the start\n", out)
    assert.equal(1, neap "status flags/default")
    clock:advance(100000)
    local permit = flags:acquire()
    assert.equal(1, neap "status flags")
    says "flags/default  half_open"
    says "\n  probes: 1 under way, 0 succeeded, 0 failed\n"
    flags:report(permit, "success")
  end)

  it("says by which rule it opened, and when, however many probes have failed since", function()
    fail(flags)
    neap "status flags"
    assert.is_nil(out:find("not closed since", 1, true), "twice the same")
    local opened = assert(out:match "  (12:40 closed %-> open: .-)\n")
    for _ = 1, 30 do
      clock:advance(100000)
      guards.call(flags, 500)
      neap "status flags"
      says("\n  not closed since " .. opened .. "\n")
    end
    flags:reset()
    neap "status flags"
    assert.is_nil(out:find("not closed since", 1, true), out)
    clock:advance(7000)
    fail(flags)
    clock:advance(100000)
    guards.call(flags, 500)
    neap "status flags"
    says "\n  not closed since 12:47 closed -> open: 1 failure in 1 call" -- another outage
  end)

  it("has those in trouble first, then those with a mode", function()
    for _, key in ipairs { "a", "b", "c", "d" } do guards.call(flags, 200, 1, key) end
    fail(flags, "c")
    flags:mode("b", "forced_closed", { by = "bob" })
    neap "status flags"
    local order = {}
    for key in out:gmatch "flags/(%w+)  " do order[#order + 1] = key end
    assert.same({ "c", "b", "a", "d", "default" }, order)
  end)

  it("says that a closed one lets only a share of the calls in: the ramp", function()
    shop = guards.new("shop", { clock = clock, rules = { failures = 1, cooldown_ms = 5000,
      jitter = 0, probes = 1, successes = 1, ramp_ms = 10000 } })
    fail(shop)
    clock:advance(5000)
    shop:report(shop:acquire(), "success")
    clock:advance(4000)
    assert.equal(0, neap "status shop")
    says "shop/default  closed"
    says "\n  ramp: lets 40 % of the calls in\n"
    clock:advance(6000)
    neap "status shop"
    assert.is_nil(out:find("ramp", 1, true))
  end)

  it("says what is under way, and how much of it hangs", function()
    shop = guards.new("shop", { clock = clock, rules = { consecutive_failures = 0, slow_rate = 0.5,
      slow_call_ms = 1000, minimum_calls = 100, timeout_ms = 5000 } })
    local held = {}
    for i = 1, 3 do held[i] = shop:acquire() end
    assert.equal(0, neap "status shop")
    assert.is_nil(out:find("under way", 1, true))
    clock:advance(1100)
    shop:sweep()
    held[4] = shop:acquire()
    neap "status shop"
    says "\n  4 calls under way, 3 of them for longer than slow_call_ms\n"
    neap "status shop --json"
    local row = json.decode(out).breakers[1]
    assert.same({ "default", 4, 3 }, { row.key, row.in_flight, row.overdue })
    for _, permit in ipairs(held) do shop:report(permit, "success") end
    neap "status shop"
    assert.is_nil(out:find("under way", 1, true))
  end)

  it("says what a policy keeps: queues, old answers, keys", function()
    local stats = flags:stats()
    stats.queues = { { name = "orders", waiting = 12, bytes = 34000, done = 7, dead = 2 } }
    stats.stores = { { entries = 3, bytes = 2000, max_entries = 1000, evicted = 5 } }
    stats.keys, stats.max_keys, stats.overflow, stats.evicted = 40, 50, 9, 1
    flags.stats = function() return stats end
    policies[2] = { name = "pay", path = "p/pay.lua", hash = "4567", is_gone = false,
      is_orphaned = false, reloads = 0, failures = 0 }
    assert.equal(0, neap "status")
    says "\npolicy flags: queue orders: 12 calls wait (34 KB); dead letters since the start: 2\n"
    says "\npolicy flags: last good answers: 3 of 1000, 2 KB; 5 made room for others\n"
    says("\npolicy flags: keys: 40 of 50; 9 calls found no room and share *; 1 made room for "
      .. "another\n")
    assert.is_nil(out:find("policy pay", 1, true))
    neap "status --json"
    local row = json.decode(out).policies[1]
    assert.same({ 12, 2, 3, 5, 40, 9 }, { row.queues[1].waiting, row.queues[1].dead,
      row.stores[1].entries, row.stores[1].evicted, row.keys.used, row.keys.overflow })
  end)

  it("says whose mode is in force, why and until when, and what it comes to", function()
    fail(flags)
    flags:mode(nil, "forced_closed", { by = "bob", reason = "load test", for_ms = 600000 })
    assert.equal(1, neap "status flags")
    says("\n  mode forced_closed, by bob at 12:40: load test; ends in 10 min\n"
      .. "  lets every call through\n")
    assert.is_nil(out:find("lets a call through in", 1, true))
    flags:mode(nil, "forced_open", { by = "bob" })
    assert.equal(1, neap "status flags")
    says("\n  mode forced_open, by bob at 12:40; until somebody changes it\n"
      .. "  lets no call through\n")
    assert.is_nil(out:find("lets a call through in", 1, true))
    shop = guards.new("shop", { clock = clock, rules = { failures = 1, mode = "forced_closed" } })
    neap "status shop"
    says "\n  mode forced_closed, as the policy says\n"
  end)

  it("of a shadow says what differs, if something does; and what is wrong with its file", function()
    local row = { file = "next/flags.lua", state = "closed", calls = 3, saved = 0, lost = 0,
      neutral = 0, let_through = 0, opened = 0, errors = 0, text = "shadow next/flags.lua: …" }
    local snapshot = flags.snapshot
    flags.snapshot = function(...)
      local taken = snapshot(...)
      taken.shadow = row
      return taken
    end
    neap "status flags"
    assert.is_nil(out:find("\n  shadow ", 1, true))
    says "\npolicy flags: shadow next/flags.lua: has not differed yet\n"
    for field, value in pairs { saved = 1, state = "open" } do
      local was = row[field]
      row[field] = value
      neap "status flags"
      says "\n  shadow next/flags.lua: …\n"
      row[field] = was
    end
    row.opened = 1
    neap "status flags"
    assert.is_nil(out:find("has not differed", 1, true))
    local stats = flags:stats()
    stats.shadow = { file = "next/flags.lua", error = "next/flags.lua:2: trip.f: is not a key" }
    flags.stats = function() return stats end
    assert.equal(0, neap "status flags")
    says("\npolicy flags: the last good version of its shadow judges: next/flags.lua:2: trip.f: "
      .. "is not a key\n")
  end)

  it("says which policy's file is wrong, and is 1 then", function()
    policies[1].error = "p/flags.lua:3: trip.failures: 0 is out of range"
    assert.equal(1, neap "status")
    says("\npolicy flags: the last good version serves: p/flags.lua:3: trip.failures: 0 is out of "
      .. "range\n")
    policies[1].error, policies[1].is_gone, policies[1].is_orphaned = nil, true, true
    assert.equal(1, neap "status")
    says "\npolicy flags: p/flags.lua is gone, its policy serves\n"
  end)

  it("of one policy has nothing to say of another's file, but of parameter files", function()
    policies[2] = { name = "pay", path = "p/pay.lua", hash = "4567", is_gone = false,
      is_orphaned = false, reloads = 0, failures = 0 }
    policies[1].error = "p/flags.lua:3: trip.failures: 0 is out of range"
    assert.equal(0, neap "status pay")
    assert.is_nil(out:find("flags", 1, true))
    assert.equal(0, neap "status pay/default --json")
    assert.same({ 1, "pay" }, { #json.decode(out).policies, json.decode(out).policies[1].name })
    assert.equal(1, neap "status flags/default")
    policies[3] = { name = "params", path = "params.lua", error = "params.lua:1: syntax error",
      is_gone = false, is_orphaned = false, reloads = 0, failures = 1 }
    assert.equal(1, neap "status pay")
    says "file params.lua is not in force as it is: params.lua:1: syntax error"
  end)

  it("is the same as JSON for programs", function()
    fail(flags)
    assert.equal(1, neap "status --json")
    local value = json.decode(out)
    assert.same({ 3, "open", "flags" },
      { #value.breakers + #value.policies, value.breakers[1].state, value.policies[1].name })
  end)

  it("has colours on a terminal only, and lets no key's bytes at it", function()
    guards.call(flags, 200, 1, "a\27[31mb\n")
    neap "status"
    says "flags/a\\x1b[31mb\\x0a  "
    assert.is_nil(out:find "\27")
    neap("status", { is_terminal = true })
    says "\27[32mclosed\27[0m"
    neap("status", { is_terminal = true, env = { NO_COLOR = "1" } })
    assert.is_nil(out:find "\27")
  end)

  it("is as wide as its widest name, counted in characters", function()
    guards.call(flags, 200, 1, ("\1"):rep(60))
    guards.call(flags, 200, 1, "\195\169\195\169")
    assert.equal(0, neap "status flags")
    local width = #"flags/" + 4 * 60
    says("\nflags/default" .. (" "):rep(width - #"flags/default") .. "  closed  no calls")
    says("\nflags/\195\169\195\169" .. (" "):rep(width - #"flags/ee") .. "  closed  1 call, ")
  end)

  it("lets none of the terminal's other commands at it: C1, in UTF-8", function()
    guards.call(flags, 200, 1, "a\194\15531mb")
    neap "status"
    says "flags/a\\x9b31mb  "
  end)

  for _, case in ipairs {
    { 200, "{}" }, { 200, "[]" }, { 200, "7" }, { 200, '{ "breakers": 7 }' }, { 200, "<html>" },
    { 200, '{ "breakers": {}, "policies": 5 }' }, { 404, "[]" }, { 500, "" },
    { 200, '{ "breakers": [7], "policies": [] }' }, { 200, '{ "breakers": [{}], "policies": [] }' },
    { 200, '{ "breakers": [], "policies": [{}] }' },
  } do
    it(("is 3 if what answers is no neap: %d %s"):format(case[1], case[2]), function()
      strange = case
      assert.equal(3, neap "status")
      complains "is that neap's admin address?"
      assert.equal("", out)
    end)
  end

  it("is 1 with what is meant if there is no such breaker, 3 if nobody can be asked", function()
    assert.equal(1, neap "status flagz")
    complains "neap status: there is no policy flagz: did you mean flags?\n"
    assert.equal(1, neap "status flags/defualt")
    assert.equal(3, neap "status --admin 127.0.0.1:1")
    complains("neap status: 127.0.0.1:1: Failed to connect; is neap serve running, with its admin "
      .. "pages there? --admin ADDRESS says where\n")
    assert.equal(2, neap "status a b")
    assert.equal(2, neap "status --jsno")
    complains "did you mean --json?"
  end)

  it("has the token with it", function()
    files = os.tmpname()
    local file = assert(io.open(files, "w"))
    file:write("0123456789abcdef\n")
    file:close()
    finally(function() os.remove(files) end)
    pages.token = function() return "0123456789abcdef" end
    assert.equal(3, neap "status")
    complains "127.0.0.1:9464: needs its token: --admin-token-file FILE"
    assert.equal(0, neap("status --admin-token-file " .. files))
    assert.equal(3, neap "status --admin-token-file /nonexistent/token")
    complains "/nonexistent/token: No such file or directory"
  end)
end)

describe("neap mode", function()
  it("sets the mode of one breaker, for so long, by whom and why", function()
    guards.call(flags, 200, 1, "eu/a")
    assert.equal(0, neap "mode flags/eu/a forced_open --for 10m --reason a~drill")
    assert.equal(2, neap "mode flags/eu/a")
    assert.is_nil(flags:operator())
    local set = flags:operator "eu/a"
    assert.same({ "forced_open", "ann", "a drill", 600000 },
      { set.mode, set.by, set.reason, set.until_ms - set.at_ms })
  end)

  it("without a key sets that of every breaker that the policy has", function()
    guards.call(flags, 200, 1, "eu")
    assert.equal(0, neap "mode flags forced_closed --by bob")
    assert.same({ "bob", "bob" }, { flags:operator().by, flags:operator("eu").by })
    says "flags/default"
    says "flags/eu"
    assert.is_nil(pay:operator())
    assert.equal(0, neap "mode flags policy")
    assert.is_nil(flags:operator "eu")
  end)

  it("goes on with the others if a breaker is gone by then, and says so", function()
    for _, key in ipairs { "a", "berlin", "c" } do guards.call(flags, 200, 1, key) end
    local handle = pages.handle
    pages.handle = function(self, request)
      if request.method == "POST" then flags.lines.berlin = nil end
      return handle(self, request)
    end
    assert.equal(1, neap "mode flags forced_open")
    assert.same({ "forced_open", "forced_open", "forced_open" },
      { flags:operator("a").mode, flags:operator("c").mode, flags:operator().mode })
    complains "neap mode: flags/berlin: flags has no breaker berlin"
    says "flags/c"
  end)

  it("reaches a key that is empty", function()
    guards.call(flags, 200, 1, "")
    assert.equal(0, neap "mode flags forced_open")
    assert.equal("forced_open", flags:operator("").mode)
  end)

  it("reaches a key that is no UTF-8", function()
    guards.call(flags, 200, 1, "\255x")
    guards.call(flags, 200, 1, "y")
    assert.equal(0, neap "mode flags forced_open")
    assert.equal("forced_open", flags:operator("\255x").mode)
    assert.equal("forced_open", flags:operator("y").mode)
    guards.call(flags, 200, 1, "\254x")
    assert.equal(1, neap "mode flags forced_closed")
    complains "two breakers"
    assert.equal("forced_open", flags:operator("\255x").mode)
    assert.equal("forced_closed", flags:operator("y").mode)
  end)

  it("says what is wrong, and who has to be said", function()
    assert.equal(1, neap "mode flags forced_opne")
    complains "did you mean forced_open?"
    assert.equal(1, neap "mode flags forced_open --for 10")
    complains "for: 10 has no unit; e.g. 90s, 10m, 2h"
    assert.equal(2, neap("mode flags forced_open", { env = {} }))
    complains "--by NAME: say who does this"
    assert.equal(1, neap "mode flagz forced_open")
    assert.equal(2, neap "mode flags")
  end)
end)

describe("neap trip and reset", function()
  it("open and close a breaker", function()
    assert.equal(0, neap "trip flags --for 3s")
    assert.equal("open", flags:snapshot().state)
    says "tripped by hand, by ann"
    assert.equal(1, neap "trip flags --for 10h")
    complains "is more than the policy's open.max_cooldown_ms"
    assert.equal(0, neap "reset flags/default --by bob")
    assert.same({ "closed", "bob" }, { flags:snapshot().state, flags:last_transition().by })
    assert.equal(2, neap "reset")
    assert.equal(2, neap "trip")
  end)
end)

describe("neap params", function()
  local change

  before_each(function()
    change = nil
    local policy = {
      name = "flags", declares = true, params_hash = "0123", params = {},
      parameters = {
        { name = "pause_ms", type = "ms", default = 300, value = 300, from = "default" },
        { name = "t", type = "table", value = { a = { 1, 2 } }, from = "params.lua:1" },
        { name = "share", type = "share", from = "default" },
      },
    }
    pages.params = function() return policy end
    pages.set_params = function(_, given)
      change = given
      if given.set.nope then return nil, "the policy declares no such parameter" end
      return {}
    end
  end)

  it("shows them, and where each is from", function()
    assert.equal(0, neap "params flags")
    assert.equal("pause_ms = 300  (default; a whole number of milliseconds, 0 or more)\n"
      .. "t = { a = { 1, 2 } }  (params.lua:1; a table)\n"
      .. "share = not set  (default; a share from 0 to 1)\n", out)
    assert.equal(0, neap "params flags --json")
    assert.equal(300, json.decode(out).params[1].value)
  end)

  it("says that there are none", function()
    pages.params = function() return { name = "flags", params = {}, parameters = {} } end
    assert.equal(0, neap "params flags")
    assert.equal("none is set, and the policy declares none\n", out)
  end)

  it("lets no bytes of whoever set one at the terminal", function()
    pages.params = function()
      return { name = "flags", declares = true, params = {}, parameters = {
        { name = "word", type = "text", value = "a\194\1551m", from = "admin, by a\27[31mnn\n" },
      } }
    end
    assert.equal(0, neap "params flags")
    assert.equal('word = "a\\x9b1m"  (admin, by a\\x1b[31mnn\\x0a; a text)\n', out)
  end)

  it("is 3 if what answers is no neap", function()
    for _, body in ipairs { "{}", '{ "params": 7 }', '{ "params": [7] }' } do
      strange = { 200, body }
      assert.equal(3, neap "params flags")
      complains "is that neap's admin address?"
    end
    strange = { 404, '{ "detail": "no\\u001b[31m" }' }
    assert.equal(1, neap "params flags")
    assert.is_nil(err:find "\27")
  end)

  it("sets them, as texts that stand for what their types say", function()
    assert.equal(0, neap "params flags a=500 b=x+y%~z --reason slow --unset c --unset d")
    assert.same({
      set = { a = { text = "500" }, b = { text = "x+y% z" } }, unset = { "c", "d" }, by = "ann",
      reason = "slow",
    }, change)
    assert.equal(1, neap "params flags nope=1")
    complains "neap params: the policy declares no such parameter\n"
    assert.equal(2, neap "params flags nope")
    complains "nope: must be NAME=VALUE"
    assert.equal(2, neap "params")
  end)
end)
