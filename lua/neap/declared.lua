--- What a policy declares of its params, at its top, and what they come to.
--
--   params.declare {
--     timeout_ms = { type = "ms", min = 50, max = 2000, default = 300, doc = "of one call" },
--   }
--
-- From then on params.timeout_ms is a value that holds what was declared: the default, or what the
-- deployment sets (neap.settings), which is refused if it is of another type or out of range.  A
-- policy that declares nothing takes what it is given.

local parameters = require "neap.parameters"
local problem = require "neap.problem"
local settings = require "neap.settings"
local suggest = require "neap.suggest"

local declared = {}

local shown = problem.shown

---@alias neap.declared.type
---| "ms"      # a whole number of milliseconds, 0 or more
---| "whole"   # a whole number
---| "share"   # a number from 0 to 1
---| "number"
---| "text"
---| "boolean"
---| "table"   # of numbers, texts, booleans and such tables
---| "choice"  # one of `choices`, which are texts

local YEAR_MS = 365 * 24 * 60 * 60 * 1000
local LARGEST = 2 ^ 53

--- How each type is said; its range without min and max; and how a text stands for it.
local TYPES = {
  ms = { said = "a whole number of milliseconds", min = 0, max = YEAR_MS, is_whole = true },
  whole = { said = "a whole number", min = -LARGEST, max = LARGEST, is_whole = true },
  share = { said = "a share", min = 0, max = 1 },
  number = { said = "a number", min = -math.huge, max = math.huge },
  text = { said = "a text", lua = "string" },
  boolean = { said = "true or false", lua = "boolean" },
  table = { said = "a table", lua = "table" },
  choice = { said = "one of" },
}

local FIELDS = { "type", "min", "max", "choices", "default", "doc" }
local RESERVED = { declare = true, by = true, reason = true, unset = true }

-- ---- One value --------------------------------------------------------------------------------

local function is_number(spec) return TYPES[spec.type].min ~= nil end

--- What would be right: "a whole number of milliseconds from 50 to 2000".
---@param spec neap.declared.row
---@return string
function declared.expected(spec)
  local kind = TYPES[spec.type]
  if spec.type == "choice" then return '"' .. table.concat(spec.choices, '", "') .. '"' end
  if not is_number(spec) then return kind.said end
  local min, max = spec.min or kind.min, spec.max or kind.max
  local has_min, has_max = min > -LARGEST, max < (spec.type == "ms" and YEAR_MS or LARGEST)
  if has_min and has_max then
    return ("%s from %s to %s"):format(kind.said, shown(min), shown(max))
  end
  if has_min then return ("%s, %s or more"):format(kind.said, shown(min)) end
  return has_max and ("%s, at most %s"):format(kind.said, shown(max)) or kind.said
end

local function number_fault(spec, value)
  local kind = TYPES[spec.type]
  if type(value) ~= "number" or value ~= value then
    return ("%s is not a number: %s"):format(shown(value), declared.expected(spec))
  end
  if value < (spec.min or kind.min) or value > (spec.max or kind.max)
    or value == math.huge or value == -math.huge then
    return ("%s is out of range: %s"):format(shown(value), declared.expected(spec))
  end
  if kind.is_whole and value % 1 ~= 0 then
    return ("%s is not whole: %s"):format(shown(value), declared.expected(spec))
  end
end

local function choice_fault(spec, value)
  for _, choice in ipairs(spec.choices) do
    if choice == value then return nil end
  end
  return ("%s is not one of %s%s"):format(shown(value), declared.expected(spec),
    suggest.hint(value, spec.choices))
end

--- What is wrong with a value, or nil.
local function fault_of(spec, value)
  if is_number(spec) then return number_fault(spec, value) end
  if spec.type == "choice" then return choice_fault(spec, value) end
  if type(value) ~= TYPES[spec.type].lua then
    return ("%s: %s is needed"):format(shown(value), declared.expected(spec))
  end
end

--- A right value as the policy sees it: a whole number is one also where that is another kind, so
--- that nobody reads 500.0.
local function settled(spec, value)
  if type(value) == "table" then return parameters.copy(value) end
  return TYPES[spec.type].is_whole and math.floor(value) or value
end

--- What a text stands for; nil and what is wrong with it.
local function read_text(spec, text)
  if is_number(spec) then
    local is_plain = text:find("^[+-]?%d+%.?%d*$") or text:find("^[+-]?%d+%.?%d*[eE][+-]?%d+$")
      or text:find("^[+-]?%.%d+$")
    if is_plain then return tonumber(text) end
    return nil, ("%s is not a number: %s"):format(shown(text), declared.expected(spec))
  elseif spec.type == "boolean" then
    if text == "true" then return true end
    if text == "false" then return false end
    return nil, ("%s: true or false is needed"):format(shown(text))
  elseif spec.type == "table" then
    return nil, "a table can't be written as a text: set it in a file"
  end
  return text
end

-- ---- The declaration --------------------------------------------------------------------------

---@class (exact) neap.declared.row what is known of one parameter
---@field name string|number
---@field type? neap.declared.type nil: not declared, as all but the value and where it is from
---@field min? number
---@field max? number
---@field choices? string[]
---@field default? any
---@field doc? string
---@field value? any in force
---@field from string "default", or where it is set

local function fail(name, message, ...)
  error(("params.declare: %s%s"):format(name and name .. ": " or "", message:format(...)), 0)
end

local function check_field_names(name, given)
  for field in next, given do
    local is_known = false
    for _, known in ipairs(FIELDS) do is_known = is_known or known == field end
    if not is_known then
      fail(name, "%s is not known%s", tostring(field), suggest.hint(field, FIELDS))
    end
  end
end

local function type_names()
  local names = {}
  for name in next, TYPES do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function check_type(name, kind)
  if TYPES[kind] then return end
  if kind == nil then
    fail(name, "type is missing: one of %s", table.concat(type_names(), ", "))
  end
  fail(name, "type = %s: must be one of %s%s", shown(kind), table.concat(type_names(), ", "),
    suggest.hint(kind, type_names()))
end

local function check_bound(name, spec, which)
  local bound = rawget(spec, which)
  if bound == nil then return end
  if not is_number(spec) then fail(name, "%s: a %s has none", which, spec.type) end
  local fault = number_fault({ type = spec.type }, bound)
  if fault then fail(name, "%s: %s", which, fault) end
end

local function check_choices(name, spec)
  if spec.type ~= "choice" then
    if spec.choices ~= nil then fail(name, "choices: a %s has none", spec.type) end
    return
  end
  local is_list = type(spec.choices) == "table" and rawget(spec.choices, 1) ~= nil
  for _, choice in ipairs(is_list and spec.choices or {}) do
    is_list = is_list and type(choice) == "string"
  end
  if not is_list then fail(name, 'choices: a list of texts is needed, e.g. { "fast", "safe" }') end
end

--- A copy of one declaration, checked.
local function spec_of(name, given)
  if type(name) ~= "string" or not name:find("^[%a_][%w_]*$") or #name > 64 then
    fail(nil, "%s is no name of a parameter: letters, digits and _", shown(name))
  elseif RESERVED[name] then
    fail(nil, "%s is no name for a parameter: it means something else to whoever sets one", name)
  elseif type(given) ~= "table" then
    fail(name, '%s: a table is needed, e.g. { type = "ms", default = 300 }', shown(given))
  end
  check_field_names(name, given)
  local spec = { name = name }
  for _, field in ipairs(FIELDS) do spec[field] = rawget(given, field) end
  check_type(name, spec.type)
  check_bound(name, spec, "min")
  check_bound(name, spec, "max")
  if spec.min and spec.max and spec.min > spec.max then
    fail(name, "min = %s is more than max = %s", shown(spec.min), shown(spec.max))
  end
  check_choices(name, spec)
  if spec.doc ~= nil and type(spec.doc) ~= "string" then fail(name, "doc: a text is needed") end
  local fault = spec.default ~= nil and fault_of(spec, spec.default)
  if fault then fail(name, "default: %s", fault) end
  return spec
end

--- All of them, by name; and in the order in which they are shown.
local function specs_of(given)
  if type(given) ~= "table" then
    fail(nil, "%s: a table is needed, { name = { type = … }, … }", shown(given))
  end
  local by_name, names, by_env = {}, {}, {}
  for name, one in next, given do
    by_name[name] = spec_of(name, one)
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local env = settings.env_name(name)
    if by_env[env] then
      fail(nil, "%s and %s are one name in the environment, %s", by_env[env], name, env)
    end
    by_env[env] = name
  end
  local copy, fault = parameters.copy(by_name) -- a default may be a table, and is ours from here on
  if not copy then fail(nil, "%s: %s", fault.key, fault.message) end
  return copy, names, by_env
end

-- ---- What they come to ------------------------------------------------------------------------

---@class neap.Declared
---@field params table what the policy sees
---@field problems neap.Problem[] with what is set
---@field declares boolean
---@field private specs table<string, neap.declared.row>|nil
local Declared = {}
Declared.__index = Declared

--- What is wrong with an entry, said where it is set.
local function complain(self, entry, name, message)
  local key
  if entry.file then
    key = ("%s.%s"):format(self.policy, tostring(name))
  elseif not entry.env then
    key = "params." .. tostring(name)
  end
  self.problems[#self.problems + 1] = problem.new {
    file = entry.file or entry.from == "the program" and self.path or entry.from,
    line = entry.line, key = key, value = entry.value, message = message,
  }
end

local function env_names(names)
  local out = {}
  for i, name in ipairs(names) do out[i] = settings.env_name(name) end
  return out
end

--- Takes one entry, if it is right.
local function take(self, entry, names, by_env)
  local name = entry.env and by_env[entry.env] or entry.name
  local spec = self.specs[name]
  if not spec then
    if self.takes_what_fits then return end
    local known = entry.env and env_names(names) or names
    local hint = suggest.hint(entry.env or name, known)
    if hint == "" and names[1] then hint = ": there are " .. table.concat(known, ", ") end
    local message = ("the %s declares no such parameter%s"):format(self.what, hint)
    return complain(self, entry, name, message)
  end
  local value, fault = entry.value, nil
  if entry.text then value, fault = read_text(spec, entry.text) end
  fault = fault or fault_of(spec, value)
  if fault then return complain(self, entry, name, fault) end
  self.values[name], self.from[name] = settled(spec, value), entry.from
end

local function strict(names, again)
  return function(_, name)
    if name == "declare" then return again end
    for _, known in ipairs(names) do
      if known == name then return nil end
    end
    error(("params.%s is not declared%s"):format(tostring(name), suggest.hint(name, names)), 2)
  end
end

local function declare(self, given)
  if self.specs then fail(nil, "is called twice") end
  if self.is_over then fail(nil, "belongs at the top of the file, not into a function") end
  if self.was_read then
    fail(nil, "comes too late, params.%s has been read: it belongs at the top of the file, before "
      .. "require", self.was_read)
  end
  local names, by_env
  self.specs, names, by_env = specs_of(given)
  self.names, self.values = names, {}
  for name, spec in next, self.specs do
    if spec.default ~= nil then self.values[name] = settled(spec, spec.default) end
  end
  for _, entry in ipairs(self.given) do take(self, entry, names, by_env) end
  for name in next, self.params do self.params[name] = nil end
  for name, value in next, parameters.copy(self.values) or {} do self.params[name] = value end
  self.meta.__index = strict(names, self.undeclared.declare)
end

--- Raised where the policy called it.
local function at_caller(f)
  return function(given)
    local ok, err = pcall(f, given)
    if not ok then error(err, 2) end
  end
end

--- What the policy's file has been loaded with is complete; answers the params in force.
---@param has_run boolean else it may have declared something further down
---@return table values
function Declared:close(has_run)
  self.is_over = true
  if not self.specs then self.meta.__index = self.undeclared end
  if self.specs or self.takes_what_fits or not has_run then return self.values end
  for _, entry in ipairs(self.given) do
    if entry.text then
      complain(self, entry, entry.name or entry.env, ("the %s declares no parameters, so nobody "
        .. "knows what that text stands for: it needs params.declare { … }"):format(self.what))
    end
  end
  return self.values
end

--- One for each parameter: what was declared, the value in force and where it is from.
---@return neap.declared.row[]
function Declared:rows()
  local rows, names = {}, self.names
  if not names then
    names = {}
    for name in next, self.values do names[#names + 1] = name end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  end
  for i, name in ipairs(names) do
    local row = {}
    for field, value in next, self.specs and self.specs[name] or {} do row[field] = value end
    row.name, row.value = name, self.values[name]
    row.from = self.from[name] or "default"
    rows[i] = row
  end
  return rows
end

--- What a text stands for is not known before the declaration: until then there is no such param,
--- so that whoever reads it is noticed.
local function hide_texts(self)
  local is_text = {}
  for _, entry in ipairs(self.given) do
    if entry.text then is_text[entry.env or settings.env_name(tostring(entry.name))] = true end
  end
  for name in next, self.params do
    if is_text[settings.env_name(tostring(name))] then self.params[name] = nil end
  end
end

--- Params of one policy generation.  Or nil and what is wrong with what a program gave.
---@param given neap.Setting[]
---@param options { path: string, policy: string, takes_what_fits: boolean|nil, what: string|nil }
---  takes_what_fits: entries for others are none of its business; what: "policy", if not given
---@return neap.Declared|nil, { key: string, message: string }|nil fault
function declared.new(given, options)
  local values, from, plain = {}, {}, {}
  for i, entry in ipairs(given) do
    plain[i] = entry
    if not entry.text then values[entry.name], from[entry.name] = entry.value, entry.from end
  end
  local copy, fault = parameters.copy(values)
  if not copy then return nil, fault end
  local self = setmetatable({
    given = plain, values = copy, from = from, problems = {}, path = options.path,
    policy = options.policy, takes_what_fits = options.takes_what_fits,
    what = options.what or "policy",
  }, Declared)
  self.params = parameters.copy(values) -- which the policy may change
  hide_texts(self)
  self.undeclared = { declare = at_caller(function(declaration) declare(self, declaration) end) }
  self.meta = { __metatable = false, __index = function(_, name)
    if name ~= "declare" then self.was_read = self.was_read or tostring(name) end
    return self.undeclared[name]
  end }
  setmetatable(self.params, self.meta)
  return self
end

return declared
