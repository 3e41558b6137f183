--- What policy files amount to, or what is wrong with them: `neap check`.
---
---   run     paths -> report           reads files, prints nothing
---   text    report -> for people
---   json    report -> for programs

local core = require "neap.core"
local declared = require "neap.declared"
local json = require "neap.cmd.json"
local lines = require "neap.lines"
local parameters = require "neap.parameters"
local params_file = require "neap.params_file"
local policy = require "neap.policy"
local policy_files = require "neap.policy_files"
local problem = require "neap.problem"
local schema = require "neap.schema"
local settings = require "neap.settings"
local trying = require "neap.trying"
local verdicts = require "neap.cmd.verdicts"

local check = {}

local MAX_FILE = 1024 * 1024

---@class (exact) neap.check.report
---@field ok boolean
---@field policies neap.Policy[]
---@field errors neap.Problem[]

-- Reading ----------------------------------------------------------------------------------------

--- All policy files that the paths stand for, and whether a directory is among the paths.
local function files_of(paths, report)
  local files, path_of, has_directory = {}, {}, false
  local function add(file)
    local name = policy_files.name_of(file)
    if path_of[name] == file then return end
    files[#files + 1] = file
    if path_of[name] then
      report.errors[#report.errors + 1] = problem.new {
        file = file, message = policy_files.taken(name, path_of[name]),
      }
    end
    path_of[name] = path_of[name] or file
  end
  for _, path in ipairs(paths) do
    local here, is_directory = policy_files.at(path)
    if #here == 0 then
      report.errors[#report.errors + 1] = problem.new {
        file = path, message = "has no policy file (*.lua)",
      }
    end
    has_directory = has_directory or is_directory
    for _, file in ipairs(here) do add(file) end
  end
  return files, has_directory
end

local function read_params(path, names, report)
  local text, message = core.read(path, MAX_FILE)
  local value
  if text then value, message = params_file.parse(text, path) end
  if value then
    report.errors[#report.errors + 1] = params_file.stranger(value, names, text, path)
    return { path = path, value = value, lines = lines.of(text) }
  end
  local file, line, rest = message:match("^([^:\n]+):(%d+): (.*)$")
  report.errors[#report.errors + 1] = problem.new {
    file = file or path, line = tonumber(line), message = rest or message:gsub("^[^:\n]+: ", ""),
  }
  return { path = path }
end

--- What is set for the policies: a function of a policy's name.
local function read_settings(options, files, report)
  local names, of_files = policy_files.names_of(files), {}
  for i, path in ipairs(options.params or {}) do of_files[i] = read_params(path, names, report) end
  local environment, problems =
    settings.environment(options.environment or settings.variables(), names)
  for _, one in ipairs(problems) do report.errors[#report.errors + 1] = one end
  return function(name) return settings.for_policy(of_files, environment, name) end
end

local function check_file(path, settings_for, report)
  local loaded, err = policy.load(path, {
    settings = settings_for(policy_files.name_of(path)), strict = true,
  })
  if loaded then
    report.policies[#report.policies + 1] = loaded
    err = loaded.candidate and loaded.candidate.error
  end
  for _, one in ipairs(err and (err.all or { err }) or {}) do
    report.errors[#report.errors + 1] = one
  end
end

--- Policies that a fallback.guard names and that are not among those that load: wrong in a
--- directory, which is what is served; a file may be one of more.
local function check_guards(is_all, report)
  local names = {}
  for i, loaded in ipairs(report.policies) do names[i] = loaded.name end
  for _, loaded in ipairs(report.policies) do
    local fault = policy_files.missing_guard(loaded, names)
    if fault and is_all then
      report.errors[#report.errors + 1] = fault
    elseif fault then
      loaded.warnings[#loaded.warnings + 1] = tostring(fault) .. " among these files"
    end
  end
end

--- Loads every policy that the paths stand for.
---@param paths string[]  files, and directories of them
---@param options? { params?: string[], environment?: table<string, string> }  files that return
---  { POLICY = { … } }, of these policies; variables, those of the process if not given
---@return neap.check.report
function check.run(paths, options)
  options = options or {}
  local report = { policies = {}, errors = {} }
  local files, has_directory = files_of(paths, report)
  local settings_for = read_settings(options, files, report)
  for _, file in ipairs(files) do check_file(file, settings_for, report) end
  check_guards(has_directory, report)
  report.ok = #report.errors == 0
  return report
end

-- For people -------------------------------------------------------------------------------------

local RED, YELLOW, GREEN, DIM, PLAIN = "\27[31m", "\27[33m", "\27[32m", "\27[2m", "\27[0m"

local UNITS = { { 86400000, "d" }, { 3600000, "h" }, { 60000, "min" }, { 1000, "s" } }

--- "600000 ms (10 min)"
local function milliseconds(ms)
  for _, unit in ipairs(UNITS) do
    if ms >= unit[1] and ms % (unit[1] / 20) == 0 then
      return ("%.14g ms (%.14g %s)"):format(ms, ms / unit[1], unit[2])
    end
  end
  return ("%.14g ms"):format(ms)
end

local SHOWN = {
  ms = milliseconds,
  share = function(share) return ("%.14g (%.4g %%)"):format(share, share * 100) end,
  factor = function(factor) return ("%.14g times"):format(factor) end,
  causes = function(causes) return table.concat(causes, ", ") end,
}
SHOWN["positive share"] = SHOWN.share

--- A value of any shape in one line.
local function inline(value)
  if type(value) ~= "table" then return problem.shown(value) end
  local text = json.encode(value):gsub("\n%s*", " ")
  return #text > 70 and text:sub(1, 67) .. "..." or text
end

local function shown(spec, value)
  if type(value) == "string" then return value end
  return spec and SHOWN[spec.kind] and SHOWN[spec.kind](value) or inline(value)
end

local function value_at(config, key)
  local section, name = key:match("^(.*)%.([^.]+)$")
  if not section then return config[key] end
  return config[section] and config[section][name]
end

--- Rows of { key, value, is a default }, in the order of the schema; in place of true, what else is
--- to be said.
local function rows_of(loaded)
  local rows = {}
  for _, spec in ipairs(schema.keys) do
    local value = value_at(loaded.config, spec.key)
    if value ~= nil and spec.kind ~= "table" and spec.kind ~= "stages" and spec.key ~= "name" then
      rows[#rows + 1] = { spec.key, shown(spec, value), not loaded.given[spec.key] }
    end
  end
  return rows
end

local function add_stages(rows, loaded)
  for i, stage in ipairs(loaded.config.fallback or {}) do
    local path = ("fallback[%d]"):format(i)
    rows[#rows + 1] = { path, stage.kind, false }
    for _, spec in ipairs(schema.stages[stage.kind] or {}) do
      local value = stage[spec.key]
      if value ~= nil and spec.key ~= "kind" then
        rows[#rows + 1] = { path .. "." .. spec.key, shown(spec, value), value == spec.default }
      end
    end
  end
end

local SHOWN_PARAM = { ms = milliseconds, share = SHOWN.share }

--- A param's value as it is read, by its declared type.
local function shown_param(row, value)
  local show = type(value) == "number" and SHOWN_PARAM[row.type]
  return show and show(value) or parameters.inline(value)
end

--- What a param may be, its default, where its value is from and what it is for.
local function about_param(row)
  if not row.type then return row.from end
  local parts = { declared.expected(row) }
  if row.default == nil then
    parts[2] = "no default"
  elseif row.from == "default" then
    parts[2] = "default"
  else
    parts[2] = "default " .. shown_param(row, row.default)
  end
  if row.from ~= "default" then parts[3] = "from " .. row.from end
  return table.concat(parts, "; ") .. (row.doc and "  # " .. row.doc or "")
end

local function add_params(rows, loaded)
  for _, row in ipairs(loaded.parameters) do
    rows[#rows + 1] = {
      "params." .. tostring(row.name), shown_param(row, row.value), about_param(row),
    }
  end
end

--- What counts as what: the part of a policy that its numbers don't show.
local function add_verdicts(rows, loaded)
  local tried = verdicts.of(loaded)
  for _, outcome in ipairs { "success", "failure", "neutral" } do
    local line = verdicts.line(tried[outcome])
    if line ~= "" then rows[#rows + 1] = { "counted as " .. outcome, line, false } end
  end
end

local function painter(colours)
  return function(colour, text) return colours and colour .. text .. PLAIN or text end
end

local function policy_text(loaded, paint)
  local rows = rows_of(loaded)
  add_stages(rows, loaded)
  add_params(rows, loaded)
  add_verdicts(rows, loaded)
  for _, one in ipairs(trying.keys(loaded)) do
    rows[#rows + 1] = { "key of " .. one.request, one.key, false }
  end
  local key_width, value_width = 0, 0
  for _, row in ipairs(rows) do
    key_width = math.max(key_width, #row[1])
    if row[3] then value_width = math.max(value_width, #row[2]) end
  end
  local out = { ("%s: %s  %s"):format(loaded.path, paint(GREEN, "ok"), paint(DIM, loaded.hash)) }
  for _, row in ipairs(rows) do
    local left = ("  %-" .. key_width .. "s  %s"):format(row[1], row[2])
    local pad = (" "):rep(value_width - #row[2] + 2)
    local more = row[3] == true and "default" or row[3]
    out[#out + 1] = more and left .. pad .. paint(DIM, more) or left
  end
  for _, warning in ipairs(loaded.warnings) do
    out[#out + 1] = paint(YELLOW, "warning") .. ": " .. warning
  end
  return table.concat(out, "\n") .. "\n"
end

--- For people: what the good ones amount to, and what is wrong with the others.
---@param report neap.check.report
---@param options? { colours?: boolean }
---@return string out, string err
function check.text(report, options)
  local paint = painter(options and options.colours)
  local out, err = {}, {}
  for i, loaded in ipairs(report.policies) do out[i] = policy_text(loaded, paint) end
  for _, one in ipairs(report.errors) do
    err[#err + 1] = paint(RED, "error") .. ": " .. tostring(one) .. "\n"
  end
  return table.concat(out, "\n"), table.concat(err)
end

-- For programs -----------------------------------------------------------------------------------

--- A policy's effective configuration, for JSON: an empty chain is a list, too.
---@param loaded neap.Policy
---@return table
function check.config(loaded)
  local config = {}
  for key, value in pairs(loaded.config or {}) do config[key] = value end
  config.fallback = json.list(config.fallback or {})
  return config
end

--- The params, for JSON: what is declared of each, in `takes` in words, its value and where it is
--- from.
---@param loaded neap.Policy
---@return table
function check.parameters(loaded)
  local list = {}
  for i, row in ipairs(loaded.parameters or {}) do
    local value = {}
    for field, of_field in pairs(row) do value[field] = of_field end
    value.takes = row.type and declared.expected(row)
    list[i] = value
  end
  return json.list(list)
end

local function policy_value(loaded)
  local given = {}
  for key in pairs(loaded.given) do given[#given + 1] = key end
  table.sort(given)
  return {
    name = loaded.name, path = loaded.path, hash = loaded.hash, config = check.config(loaded),
    given = json.list(given), verdicts = verdicts.of(loaded), warnings = json.list(loaded.warnings),
    sources = json.list(loaded.sources), parameters = check.parameters(loaded),
    keys = json.list(trying.keys(loaded)),
  }
end

--- For programs: the same as one JSON text.
---@param report neap.check.report
---@return string out, string err
function check.json(report)
  local policies, errors = {}, {}
  for i, loaded in ipairs(report.policies) do policies[i] = policy_value(loaded) end
  for i, one in ipairs(report.errors) do
    errors[i] = {
      file = one.file, line = one.line, key = one.key, message = one.message, text = tostring(one),
    }
  end
  return json.encode {
    ok = report.ok, policies = json.list(policies), errors = json.list(errors),
  } .. "\n", ""
end

return check
