--- The annotations of the C module name what the module has, and nothing else.
local core = require "neap.core"
local fixture = require "tests.lua.fixture"

local function read(path)
  local file = assert(io.open((os.getenv "NEAP_ROOT" or ".") .. "/" .. path))
  local text = file:read "*a"
  file:close()
  return text
end

local text = read "lua/types/core.lua"

local function sorted(set)
  local list = {}
  for name in pairs(set) do list[#list + 1] = name end
  table.sort(list)
  return list
end

-- Of the sandbox and the watch, annotated where they are used.
local OTHERS = {
  box = true, run = true, budget = true, harden = true, library = true, list = true,
  fingerprint = true, read = true, classifier = true, requests = true,
}

describe("the annotations", function()
  it("have every function and value of the module", function()
    local annotated, there = {}, {}
    for name in text:gmatch "\nfunction core%.([%w_]+)" do annotated[name] = true end
    for name in text:gmatch "\ncore%.([%w_]+) = nil" do annotated[name] = true end
    for name in pairs(core) do
      if not OTHERS[name] then there[name] = true end
    end
    assert.same(sorted(there), sorted(annotated))
  end)

  local objects = {
    Rules = fixture.rules(), Panel = core.panel(1), Breaker = core.breaker(),
      Counters = core.panel(1):counters "c",
      Line = fixture.guard().line.native,
  }
  for class, object in pairs(objects) do
    it("have every method of " .. class, function()
      local annotated, there = {}, {}
      for name in text:gmatch("\nfunction " .. class .. ":([%w_]+)") do annotated[name] = true end
      for name in pairs(debug.getmetatable(object)) do
        if not name:find "^__" then there[name] = true end
      end
      assert.same(sorted(there), sorted(annotated))
    end)
  end

  it("have every number of the rules", function()
    local annotated = {}
    local fields = text:match "neap.core.Numbers.-\n(.-)\n\n"
    for name in fields:gmatch "@field ([%w_]+)%?" do annotated[name] = true end
    assert.same(sorted(fixture.rules():numbers()), sorted(annotated))
  end)

  it("have every field of a snapshot, of its totals and of a transition", function()
    local b, r = core.breaker(), fixture.rules()
    local snapshot = fixture.guard():snapshot()
    snapshot.shadow = {} -- which it has only where there is a candidate
    local function fields_of(class)
      local found = {}
      for name in (text:match("@class[^\n]*" .. class
        .. "[^\n]*\n(.-)\n\n")):gmatch "@field ([%w_]+)" do
        found[name] = true
      end
      return sorted(found)
    end
    assert.same(sorted(snapshot), fields_of "neap%.Snapshot")
    assert.same(sorted(snapshot.totals), fields_of "neap%.core%.Totals")
    assert.same(sorted(b:trip(r, 0)), fields_of "neap%.core%.Moved")
  end)
end)
