-- docs/policies.md says what neap.schema says, docs/simulate.md what neap.lab.sim.schema does:
-- their tables are made from these.

local scenarios = require "neap.lab.sim.schema"
local schema = require "neap.schema"

local root = assert(os.getenv("NEAP_ROOT"), "NEAP_ROOT is not set")
local lua = os.getenv("LUA") or "lua5.4"

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  return text
end

local reference = read(root .. "/docs/policies.md")

local function is_right(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  local command = "cd '%s' && %s scripts/reference.lua %s --check >/dev/null 2>&1"
  local ok = os.execute(command:format(root, lua, path))
  os.remove(path)
  return ok == true
end

describe("the policy reference", function()
  it("has the tables that neap.schema makes", function()
    assert.is_true(is_right(reference), "run make docs")
  end)

  it("would be found out if one number were another", function()
    local wrong, count = reference:gsub("100 to 3600000 ms", "200 to 3600000 ms")
    assert.equal(1, count)
    assert.is_false(is_right(wrong))
  end)

  it("has every section, every key and every stage", function()
    for _, spec in ipairs(schema.keys) do
      local section, name = spec.key:match("^(.*)%.([^.]+)$")
      if spec.kind ~= "table" then
        local mark = "<!-- keys: " .. (section or "policy") .. " -->"
        assert.truthy(reference:find(mark, 1, true), spec.key)
        assert.truthy(reference:find("| `" .. (name or spec.key) .. "` |", 1, true), spec.key)
      end
    end
    for kind in pairs(schema.stages) do
      assert.truthy(reference:find("<!-- stage: " .. kind .. " -->", 1, true), kind)
    end
  end)
end)

--- A key's own argument, not written as NAME = in a policy.
local POSITIONAL = { name = true, value = true, run = true }

describe("the examples of the policy reference, all of which run,", function()
  local examples = {}
  for block in reference:gmatch "\n```lua %a+\n(.-)\n```" do examples[#examples + 1] = block end
  examples = table.concat(examples, "\n")

  local function shown(key) return examples:find("%f[%w_]" .. key:match "[^.]+$" .. " =") end

  it("have every key", function()
    for _, spec in ipairs(schema.keys) do assert.truthy(shown(spec.key), spec.key) end
    for kind, keys in pairs(schema.stages) do
      for _, spec in ipairs(keys) do
        local is_there = POSITIONAL[spec.key] or shown(spec.key)
        assert.truthy(is_there, ("fallback.%s: %s"):format(kind, spec.key))
      end
    end
  end)

  it("have every stage", function()
    for kind in pairs(schema.stages) do
      local name = kind == "function" and "call" or kind
      assert.truthy(examples:find("fallback%." .. name .. "%s*[({]"), kind)
    end
  end)
end)

describe("the scenario reference", function()
  local simulate = read(root .. "/docs/simulate.md")

  it("has the tables that the schema makes", function()
    assert.is_true(is_right(simulate), "run make docs")
  end)

  it("would be found out if one number were another", function()
    local wrong, count = simulate:gsub("1 to 10000 |", "1 to 10001 |")
    assert.equal(1, count)
    assert.is_false(is_right(wrong))
  end)

  it("has every table and every kind", function()
    for name in pairs(scenarios.tables) do
      assert.truthy(simulate:find("<!-- scenario: " .. name .. " -->", 1, true), name)
    end
    for name in pairs(scenarios.kinds) do
      assert.truthy(simulate:find("<!-- kinds: " .. name .. " -->", 1, true), name)
    end
  end)
end)
