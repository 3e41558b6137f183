--- Writes the tables of docs/policies.md from neap.schema, and those of docs/simulate.md from
--- neap.lab.sim.schema, between their marks:
---
---   <!-- keys: trip -->       the keys of that section; "policy" is the file itself
---   <!-- stage: last_good --> the options of that fallback stage
---   <!-- classify: http -->   what that classifier goes by
---   <!-- scenario: call -->   the keys of that table of a scenario
---   <!-- kinds: faults -->    its kinds of such a table, and their keys
---   ...
---   <!-- end -->
---
---   lua5.4 scripts/reference.lua FILE           writes the file again
---   lua5.4 scripts/reference.lua FILE --check   says whether that would change anything

local classify = require "neap.classify"
local scenarios = require "neap.lab.sim.schema"
local schema = require "neap.schema"

local function cell(text) return (text:gsub("|", "\\|"):gsub("  +", " ")) end

local function number(n) return ("%.14g"):format(n) end

local function default_of(spec)
  if spec.default_doc then return spec.default_doc end
  local value = spec.default
  if value == nil then return spec.required and "must be given" or "off" end
  if type(value) == "table" then return '`{ "' .. table.concat(value, '", "') .. '" }`' end
  if type(value) == "string" then return '`"' .. value .. '"`' end
  return "`" .. (type(value) == "number" and number(value) or tostring(value)) .. "`"
end

local RANGES = {
  whole = function(spec) return ("%s to %s"):format(number(spec.min), number(spec.max)) end,
  ms = function(spec) return ("%s to %s ms"):format(number(spec.min), number(spec.max)) end,
  factor = function(spec) return ("%s to %s"):format(number(spec.min), number(spec.max)) end,
  share = function() return "0 to 1" end,
  ["positive share"] = function() return "over 0, to 1" end,
  choice = function(spec) return '`"' .. table.concat(spec.choices, '"`, `"') .. '"`' end,
  positive = function() return "over 0" end,
  list = function() return "a list" end,
  distribution = function() return "ms, or a table" end,
  policy = function() return "a file, or a table" end,
  causes = function(spec) return 'a list of `"' .. table.concat(spec.choices, '"`, `"') .. '"`' end,
}

local function range_of(spec)
  local range = RANGES[spec.kind]
  return range and range(spec) or schema.expected(spec)
end

local function rows(specs)
  local out = { "| key | | range | default |", "|---|---|---|---|" }
  for _, spec in ipairs(specs) do
    local name = spec.key:match("[^.]+$")
    out[#out + 1] = ("| `%s` | %s | %s | %s |"):format(name, cell(spec.doc), cell(range_of(spec)),
      cell(default_of(spec)))
  end
  return table.concat(out, "\n")
end

local make = {}

function make.keys(section)
  local specs = {}
  local prefix = section == "policy" and "" or section .. "."
  for _, name in ipairs(schema.names(section == "policy" and "" or section)) do
    local spec = schema.by_key[prefix .. name]
    if spec.kind ~= "table" then specs[#specs + 1] = spec end
  end
  assert(#specs > 0, "no keys in " .. section)
  return rows(specs)
end

function make.stage(kind) return rows(assert(schema.stages[kind], "no stage " .. kind)) end

function make.scenario(name)
  return rows(assert(scenarios.tables[name], "no such table: " .. name))
end

--- What all kinds have is told once, at the end.
function make.kinds(name)
  local names, shared, out = {}, {}, { "| kind | | key | | range | default |",
    "|---|---|---|---|---|---|" }
  for kind in pairs(scenarios.kinds[name]) do names[#names + 1] = kind end
  table.sort(names)
  local function add(kind, doc, spec)
    out[#out + 1] = ("| %s | %s | `%s` | %s | %s | %s |"):format(kind, doc, spec.key,
      cell(spec.doc), cell(range_of(spec)), cell(default_of(spec)))
  end
  for _, spec in ipairs(scenarios.kinds[name][names[1]]) do
    local is_shared = true
    for _, kind in ipairs(names) do
      local has = false
      for _, other in ipairs(scenarios.kinds[name][kind]) do has = has or other.doc == spec.doc end
      is_shared = is_shared and has
    end
    if is_shared then shared[#shared + 1], shared[spec.key] = spec, true end
  end
  for _, kind in ipairs(names) do
    local shown, doc = ('`"%s"`'):format(kind), scenarios.docs[name][kind]
    for _, spec in ipairs(scenarios.kinds[name][kind]) do
      if not shared[spec.key] then
        add(shown, doc, spec)
        shown, doc = "", ""
      end
    end
  end
  for i, spec in ipairs(shared) do add(i == 1 and "all" or "", "", spec) end
  return table.concat(out, "\n")
end

function make.classify(name)
  local out = { "| | verdict |", "|---|---|" }
  local classifier = assert(classify[name], "no classifier " .. name)
  local fields = {}
  for field in pairs(classifier) do fields[#fields + 1] = field end
  table.sort(fields)
  for _, field in ipairs(fields) do
    local by_verdict, verdicts = {}, {}
    for key, verdict in pairs(type(classifier[field]) == "table" and classifier[field] or {}) do
      if type(verdict) == "string" then
        if not by_verdict[verdict] then
          by_verdict[verdict] = {}
          verdicts[#verdicts + 1] = verdict
        end
        table.insert(by_verdict[verdict], tostring(key))
      end
    end
    table.sort(verdicts)
    for _, verdict in ipairs(verdicts) do
      table.sort(by_verdict[verdict])
      out[#out + 1] = ("| `%s` %s | %s |"):format(field,
        table.concat(by_verdict[verdict], ", "), verdict)
    end
  end
  return table.concat(out, "\n")
end

--- The document with its tables made new.
local function renewed(text)
  local marked = "(<!%-%- (%w+): ([%w_]+) %-%->\n).-(<!%-%- end %-%->)"
  return (text:gsub(marked, function(mark, what, of, rest)
    return make[what] and mark .. make[what](of) .. "\n" .. rest
  end))
end

local path, mode = arg[1], arg[2]
local file = assert(io.open(path))
local text = file:read("a")
file:close()
local new = renewed(text)

if mode == "--check" then
  if new ~= text then
    print(path .. " is not what the schema says: run make docs")
    os.exit(1)
  end
else
  file = assert(io.open(path, "w"))
  file:write(new)
  file:close()
end
