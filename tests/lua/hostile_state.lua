--- Runs every hostile policy in a state whose strings are hardened, and once more with the
--- library's functions called as methods.  Prints what went wrong, or "ok" and how many there were.

local core = require "neap.core"
core.harden()

local fixture = require "tests.lua.policy_fixture"
local hostile = require "tests.lua.hostile_policies"

local BOUND = fixture.is_slow() and 5 or 0.5
local BUDGET = fixture.is_slow() and { ms = 5000 } or nil

--- string.find(('a'):rep(3), 'b') as (('a'):rep(3)):find('b').
local function as_methods(body)
  local name = "string%.(%l+)"
  return (body:gsub(name .. "(%b())", function(f, args)
    local depth, at = 0, nil
    for i = 2, #args - 1 do
      local c = args:sub(i, i)
      if c:find("[({]") then depth = depth + 1 end
      if c:find("[)}]") then depth = depth - 1 end
      if c == "," and depth == 0 then
        at = i
        break
      end
    end
    if not at or f == "dump" then return nil end
    return ("(%s):%s(%s"):format(args:sub(2, at - 1), f, args:sub(at + 1))
  end))
end

local function try(title, body, fault_text, expected)
  local p = fixture.classifier(body, { budget = BUDGET })
  local before = os.clock()
  local outcome, _, _,
    fault = p.classify { now = true, status = 503, ended_by = "answer", headers = {} }
  local took = os.clock() - before
  if took > BOUND then return ("%s: took %g s"):format(title, took) end
  if not fault_text then
    return (fault or outcome ~= (expected or "success")) and title .. ": "
      .. tostring(fault or outcome) or nil
  end
  if outcome ~= "failure" or not fault or not fault:find(fault_text) then
    return ("%s: %s, %s"):format(title, outcome, tostring(fault))
  end
end

local wrong = {}
for _, case in ipairs(hostile) do
  wrong[#wrong + 1] = try(case[1], case[2], case[3], case[4])
  local methods = as_methods(case[2])
  if methods ~= case[2] then wrong[#wrong + 1] = try(case[1] .. ", by methods", methods,
    case[3] and ".", case[4]) end
end
assert(getmetatable("") == false)
assert(("abc"):find("b") == 2 and "10" + 1 == 11)
print(#wrong == 0 and "ok " .. #hostile or table.concat(wrong, "\n"))
