--- Files with mistakes that nobody thought of: the stock policies, cut and stirred at random.
--- Whatever comes of it, loading answers a policy or an error that says where; it never raises, and
--- what it takes for a policy does not raise either.

local fixture = require "tests.lua.policy_fixture"
local policy = require "neap.policy"
local version = require "tests.lua.version"
local unpack = version.unpack

local STOCK = { "flag_provider", "http_upstream", "payments", "grpc_service", "low_traffic",
  "slow_dependency" }
local PIECES = { "{", "}", "(", ")", ",", "=", "nil", "0", "-1", "1e308", "0/0", '"x"', "true",
  "...",
  "function() end", "return", "local", "params", "classify", "fallback", "fallback.default", "end",
    ".",
  "name", "trip", "failures", "[[", "]]", "--", "\n", "\0", "classify.http", "setmetatable({}, {})",
  "math.huge", "string", "_G", "for i = 1, 9 do", "error", "{ {} }", "2^53" }

local function read(name)
  local file = assert(io.open(("policies/%s.lua"):format(name)))
  local text = file:read("*a")
  file:close()
  return text
end

local seed = tonumber(os.getenv("NEAP_SEED") or "") or os.time()
local state = seed % 2147483646 + 1
local function random(n)
  state = state * 48271 % 2147483647
  return state % n + 1
end

--- The text's words, numbers, blanks and signs, one by one.
local function pieces_of(text)
  local pieces = {}
  local at = 1
  while at <= #text do
    local piece = text:match("^[%w_]+", at) or text:match("^%s+", at) or text:sub(at, at)
    pieces[#pieces + 1] = piece
    at = at + #piece
  end
  return pieces
end

local function stirred(pieces)
  local copy = { unpack(pieces) }
  for _ = 1, random(3) do
    local at, what = random(#copy), random(5)
    if what == 1 then
      table.remove(copy, at)
    elseif what == 2 then
      table.insert(copy, at, " " .. PIECES[random(#PIECES)] .. " ")
    elseif what == 3 then
      copy[at] = PIECES[random(#PIECES)]
    elseif what == 4 then
      local other = random(#copy)
      copy[at], copy[other] = copy[other], copy[at]
    else
      for _ = 1, random(20) do table.remove(copy, at) end
    end
  end
  return table.concat(copy)
end

--- What is wrong with what came of it, or nil.
local function fault_of(name, text)
  local ok, p, err = pcall(policy.parse, text, name .. ".lua")
  if not ok then return "raised " .. tostring(p) end
  if not p then
    if getmetatable(err) == nil or #err.all < 1
      or tostring(err) == "" then return "has no error" end
    for _, one in ipairs(err.all) do
      if one.file ~= name .. ".lua" or one.message == "" then return "error without a place" end
      if one.key and not one.line then return "a key without a line: " .. tostring(one) end
    end
    return nil
  end
  local call = { status = 503, ended_by = "answer", headers = {}, args = { n = 0 },
    key = "default" }
  local good, outcome = pcall(p.classify, call)
  if not good or type(outcome) ~= "string" then return "classify: " .. tostring(outcome) end
  for _, stage in ipairs(p.stages) do
    if stage.run and not pcall(stage.run, call) then return "a stage raised" end
  end
end

describe("a policy file with random mistakes", function()
  for _, name in ipairs(STOCK) do
    it(("is a policy or an error that says where: %s, seed %d"):format(name, seed), function()
      local pieces = pieces_of(read(name))
      for _ = 1, fixture.is_slow() and 10 or 400 do
        local text = stirred(pieces)
        local fault = fault_of(name, text)
        assert.is_nil(fault, ("%s\nseed %d\n%s"):format(tostring(fault), seed, text))
      end
    end)
  end

  it("is stirred: some are policies, most are not", function()
    local pieces, good = pieces_of(read("http_upstream")), 0
    for _ = 1, 200 do
      if policy.parse(stirred(pieces), "http_upstream.lua") then good = good + 1 end
    end
    assert.is_true(good > 5 and good < 150, tostring(good))
  end)
end)
