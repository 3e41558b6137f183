--- Command-line options: a table says what there is, parse() reads them, usage() prints them.
--- Answers nil and one clear line for what is wrong; prints and exits nothing itself.

local suggest = require "neap.suggest"

local options = {}

---@class neap.cmd.option
---@field name string         without the dashes
---@field value? string       what the value stands for in the help, e.g. "FILE"; none: a switch
---@field help string
---@field read? fun(text: string): any, string?  checks and converts; nil and what would be right
---@field many? boolean       may be given more than once; the result is a list
---@field example? string     a right value, for error messages

local function find(spec, name)
  for _, option in ipairs(spec) do
    if option.name == name then return option end
  end
end

local function unknown(spec, name)
  local names = { "help" }
  for _, option in ipairs(spec) do names[#names + 1] = option.name end
  local near = suggest.nearest(name, names)
  return ("unknown option --%s%s"):format(name, near and ("; did you mean --%s?"):format(near)
    or "")
end

local function read_value(option, text)
  if not option.read then return text end
  local value, expected = option.read(text)
  if value == nil then return nil, ("--%s %s: %s"):format(option.name, text, expected) end
  return value
end

local function store(values, option, value)
  if option.many then
    values[option.name] = values[option.name] or {}
    table.insert(values[option.name], value)
  elseif values[option.name] ~= nil then
    return nil, ("--%s is given twice"):format(option.name)
  else
    values[option.name] = value
  end
  return true
end

--- The value of `option` at argv[i], written "--name=value" (text) or "--name value" (the next
--- argument).
local function take(option, text, argv, i)
  if not option.value then
    if text then return nil, ("--%s takes no value"):format(option.name) end
    return true, nil, i
  end
  if not text then
    i = i + 1
    text = argv[i]
  end
  if not text or text == "" then
    return nil, ("--%s needs a value%s"):format(option.name, option.example and ", e.g. "
      .. option.example or "")
  end
  local value, message = read_value(option, text)
  return value, message, i
end

--- Reads argv[first] and on.
---@param spec neap.cmd.option[]
---@param argv string[]
---@param first? integer  1 if not given
---@return table? values  by option name; `help` is true if asked for; the rest at [1], [2] …
---@return string? message
function options.parse(spec, argv, first)
  local values, i = {}, first or 1
  while i <= #argv do
    local word = argv[i]
    local name, text = word:match("^%-%-([^=]+)=?(.*)$")
    if word == "--" then
      for j = i + 1, #argv do values[#values + 1] = argv[j] end
      return values
    elseif word == "-h" or word == "--help" then
      values.help = true
    elseif name then
      local option = find(spec, name)
      if not option then return nil, unknown(spec, name) end
      local value, message, at = take(option, word:find("=", 1, true) and text, argv, i)
      if value == nil then return nil, message end
      local stored, twice = store(values, option, value)
      if not stored then return nil, twice end
      i = at
    elseif word:match("^%-.") then
      return nil, ("unknown option %s; options begin with two dashes"):format(word)
    else
      values[#values + 1] = word
    end
    i = i + 1
  end
  return values
end

--- The options as lines of help.
function options.usage(spec)
  local lines = {}
  for _, option in ipairs(spec) do
    local left = "--" .. option.name .. (option.value and " " .. option.value or "")
    lines[#lines + 1] = ("  %-26s %s"):format(left, (option.help:gsub("\n", "\n" .. (" "):rep(29))))
  end
  return table.concat(lines, "\n")
end

return options
