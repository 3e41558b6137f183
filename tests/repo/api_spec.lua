-- docs/api.md has what the annotations have, and nothing else: each public function with its
-- parameters, each field of each table that crosses the API.

local root = assert(os.getenv("NEAP_ROOT"), "NEAP_ROOT is not set")

local function read(path)
  local file = assert(io.open(root .. "/" .. path))
  local text = file:read("a")
  file:close()
  return text
end

-- What an entry begins with -> where such functions are, and what they begin with there.
local FUNCTIONS = {
  { "guard:", "lua/neap/guard.lua", "Guard:", class = "neap.Guard", more = {
    "lua/neap/guard_lines.lua", "lua/neap/guard_log.lua", "lua/neap/guard_operate.lua" } },
  { "line:", "lua/types/call.lua", class = "neap.Line" },
  { "events:", "lua/neap/event.lua", "Queue:" },
  { "clock:", "lua/neap/clock.lua", "Manual:" },
  { "neap.clock.", "lua/neap/clock.lua", "clock." },
  { "neap.policy.", "lua/neap/policy.lua", "policy." },
  { "refusal.", "lua/neap/refusal.lua", "refusal." },
  { "reload.", "lua/neap/reload.lua", "reload." },
  { "reloader:", "lua/neap/reload.lua", "Reloader:" },
  { "watch.", "lua/neap/watch.lua", "watch." },
  { "watcher:", "lua/neap/watch.lua", "Watch:" },
  { "metrics.", "lua/neap/metrics.lua", "metrics." },
  { "panel:", "lua/types/core.lua", "Panel:" },
  { "t.", "lua/neap/testing.lua", "testing." },
  { "bench:", "lua/neap/testing/bench.lua", "Bench:", more = { "lua/neap/testing/expected.lua" } },
  { "calls:", "lua/neap/testing/calls.lua", "Calls:" },
}

local CLASSES = {
  ["neap.GuardOptions"] = "guard", ["neap.Guard"] = "guard", ["neap.Info"] = "fallback",
  ["neap.Refusal"] = "refusal", ["neap.Event"] = "event", ["neap.Host"] = "hosts/plain",
  ["neap.policy.Options"] = "policy", ["neap.Policy"] = "policy", ["neap.Problem"] = "problem",
  ["neap.reload.options"] = "reload", ["neap.reload.event"] = "reload",
  ["neap.reload.row"] = "reload", ["neap.metrics.options"] = "metrics",
  ["neap.Call"] = "../types/call", ["neap.Stats"] = "../types/call",
  ["neap.Shadow"] = "shadow", ["neap.Queued"] = "queue",
  ["neap.Snapshot"] = "../types/core", ["neap.core.Totals"] = "../types/core",
  ["neap.testing.Options"] = "testing/bench", ["neap.testing.CallOptions"] = "testing/bench",
  ["neap.testing.Call"] = "testing/calls",
}

-- What the sources say --------------------------------------------------------------------------

--- The names in a list of parameters, without types and the object itself.
local function names_of(parameters)
  local names = {}
  for one in (parameters .. ","):gmatch("%s*(.-)%s*,") do
    local name = one:match("^[%w_.]+")
    if name and name ~= "self" then names[#names + 1] = name end
  end
  return table.concat(names, ", ")
end

--- The lines of a class's fields: name, type.
local function fields_of(text, class)
  local fields = {}
  local name = class:gsub("%p", "%%%0")
  local _, from = text:find("\n%-%-%-@class [^\n]-" .. name .. "%f[^%w_.][^\n]*\n")
  assert(from, class .. " is nowhere")
  for row in text:sub(from + 1):gmatch("([^\n]*)\n") do
    if not row:match("^%-%-%-") then break end
    local field, kind = row:match("^%-%-%-@field ([%w_]+)%??%s+(.*)$")
    if field and field ~= "private" then fields[field] = kind end
  end
  return fields
end

local REPORT = read("lua/neap/guard.lua"):match("neap%.Report (fun%b())")

--- A source without its functions that are said to be private.
local function public(text)
  local lines, is_private = {}, false
  for row in text:gmatch("([^\n]*)\n") do
    is_private = is_private and row:match("^%-%-%-") ~= nil or row == "---@private"
    if not (row:match("^function ") and lines.was_private) then lines[#lines + 1] = row end
    lines.was_private = is_private
  end
  return table.concat(lines, "\n") .. "\n"
end

--- "guard:call(f, ...)" -> true, for every function of that sort.
local function annotated(sort)
  local prefix, path, own = table.unpack(sort, 1, 3)
  local text, found = public(read(path)), {}
  for _, more in ipairs(sort.more or {}) do text = text .. public(read(more)) end
  if own then
    local name = own:gsub("%p", "%%%0")
    for method, parameters in text:gmatch("\nfunction " .. name .. "([%w_]+)%((.-)%)") do
      local is_metamethod = method:match("^__")
      found[("%s%s(%s)"):format(prefix, method, parameters)] = not is_metamethod or nil
    end
    for parameters, method in text:gmatch("\n%-%-%-@type fun%((.-)%)\n" .. name .. "([%w_]+) = ") do
      found[("%s%s(%s)"):format(prefix, method, names_of(parameters))] = true
    end
    for method in text:gmatch("\n" .. name .. "([%w_]+) = core%.") do
      found[prefix .. method .. "()"] = true
    end
  end
  for method, kind in pairs(sort.class and fields_of(text, sort.class) or {}) do
    if kind == "neap.Report" then kind = REPORT end
    local parameters = kind:match("^fun%(self,?(.-)%)")
    if parameters then found[("%s%s(%s)"):format(prefix, method, names_of(parameters))] = true end
  end
  return found
end

-- What the page says ----------------------------------------------------------------------------

local page = read("docs/api.md"):gsub("\n```.-\n```", "\n")

local function entries(prefix)
  local found = {}
  for span in page:gmatch("`([^`\n]+)`") do
    if span:sub(1, #prefix) == prefix and span:sub(#prefix + 1):match("^[%w_]+%([%w_., ]*%)$") then
      found[span] = (found[span] or 0) + 1
    end
  end
  return found
end

local function described(class)
  local found = {}
  local rows = page:match("<!%-%- class: " .. class:gsub("%p", "%%%0") .. " %-%->\n(.-)<!%-%- end")
  for row in assert(rows, "no table of " .. class):gmatch("([^\n]+)") do
    for field in (row:match("^| (.-) |") or ""):gmatch("`([%w_]+)`") do found[field] = true end
  end
  return found
end

describe("docs/api.md", function()
  for _, sort in ipairs(FUNCTIONS) do
    it("has every function that begins with " .. sort[1] .. ", and no other", function()
      local there, said = annotated(sort), entries(sort[1])
      assert.is_truthy(next(there))
      for name in pairs(there) do assert(said[name], name .. " has no entry") end
      for name, times in pairs(said) do
        assert(there[name], name .. " is not so in " .. sort[2])
        assert(times == 1, name .. " is there more than once")
      end
    end)
  end

  for class, path in pairs(CLASSES) do
    it("has every field of " .. class .. ", and no other", function()
      local there = fields_of(read("lua/neap/" .. path .. ".lua"), class)
      local said = described(class)
      for field, kind in pairs(there) do
        local is_method = class == "neap.Guard" and (kind:match("^fun") or kind == "neap.Report")
        assert(said[field] or is_method, class .. "." .. field .. " is not described")
      end
      for field in pairs(said) do assert(there[field], class .. " has no " .. field) end
    end)
  end

  it("has all that require \"neap\" answers, and only classes that are checked", function()
    for name in pairs(require "neap") do
      assert(page:find("`neap%." .. name .. "%f[^%w_]"), "no neap." .. name)
    end
    for class in page:gmatch("<!%-%- class: (%S+)") do assert(CLASSES[class], class) end
  end)
end)
