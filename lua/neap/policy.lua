--- Loading a policy file: text -> sandbox -> checks -> one generation, which never changes.
--
--   local p, err = policy.load("policies/flag_provider.lua", { params = { … } })
--   if not p then print(err) end     -- policies/x.lua:12: trip.failure_rate: 50 is out of range: …
--
-- A generation holds everything that a guard needs of a policy: the rules for the core, and the
-- policy's functions, each wrapped so that it runs in the sandbox, within its budget, and never
-- raises.

local classify = require "neap.classify"
local core = require "neap.core"
local declared = require "neap.declared"
local generation = require "neap.generation"
local lines = require "neap.lines"
local parameters = require "neap.parameters"
local placed = require "neap.placed"
local problem = require "neap.problem"
local route = require "neap.route"
local sandbox = require "neap.sandbox"
local settings = require "neap.settings"
local stages = require "neap.stages"
local together = require "neap.together"
local trying = require "neap.trying"
local validate = require "neap.validate"
local verdicts = require "neap.verdicts"

local policy = {}

local shown = problem.shown
local unpack = table.unpack or _G.unpack

---@class (exact) neap.Policy one generation of a policy
---@field name string
---@field path string
---@field hash string of the file, its modules and params: 16 hexadecimal digits
---@field sources string[] the files it was read from, itself first
---@field rules userdata the numbers, as neap.core.rules gave them
---@field config table the effective configuration, defaults included, to be printed
---@field given table<string, true> the keys that the file sets itself, by their paths
---@field timeout_ms? integer
---@field deadline_ms? integer
---@field retry? table attempts, base_ms, max_ms, budget, budget_per_s, on: the section, defaults
---  included
---@field bulkhead? table likewise: concurrent, wait_ms
---@field key? fun(call: table): string?, string? whose breaker is the call's, nil: the default
---  one's; a fault
---@field max_keys? integer
---@field mode string
---@field params table in force: what was given, or what the file declares, defaults included
---@field params_hash string of them
---@field declares boolean whether the file declares its params
---@field parameters neap.declared.row[] each of them, and where its value is from
---@field settings neap.Setting[] what was given
---@field warnings string[] what is allowed but hardly was meant
---@field warned neap.Warned what its functions have said by warn()
---@field stages neap.Stage[] the fallback chain, in order
---@field fallback_on table<string, boolean> the causes that make it answer
---@field has_classify boolean whether the policy has one of its own
---@field classify fun(call: table): neap.Outcome, string?, integer?, string? outcome, reason,
---  retry_after_ms, fault
---@field trip? fun(snapshot: table): boolean, string? whether to open, fault
---@field candidate? neap.Candidate of a policy with a shadow
---@field on_transition? fun(event: table): string? a fault
---@field decide? fun(round: table): "close"|"open"|nil, string? what to do, fault

---@class (exact) neap.policy.Options
---@field params? table numbers, texts, booleans and tables of them that the deployment sets
---@field settings? neap.Setting[] in place of params: with where they are set
---@field root? string where `require` looks; the file's directory if nil
---@field budget? neap.Budget of one decision
---@field read? fun(path: string): string|nil, string|nil how files are read
---@field strict? boolean its functions are tried, too: see neap.trying
---@field is_candidate? boolean of a shadow policy: settings for others are none of its business

local function read_file(path)
  return core.read(path, 1024 * 1024)
end

local function base_name(path)
  return (path:match("([^/]*)$"):gsub("%.lua$", ""))
end

local function check_name(values, path, report)
  local name, expected = values.name, base_name(path)
  if not name then return end
  if path:find("%.lua$") and name ~= expected then
    report("name", name, "%s is not the file's name: %s is needed", shown(name), shown(expected))
  elseif #name > 64 or name:find("[^%w_.-]") then
    report("name", name, "%s has over 64 letters, or others than A-Z a-z 0-9 _ . -", shown(name))
  end
end

local function check_shadow(values, report)
  local file = values.shadow
  if file and (not file:find("^[%w_.-][%w_./-]*%.lua$") or file:find("..", 1, true)) then
    report("shadow", file, "%s: a file *.lua below this one's directory is needed, e.g. %s",
      shown(file), '"candidates/next.lua"')
  end
end

local function refused(fields) return nil, problem.error { problem.new(fields) } end

--- What is given from outside the file: nil and what is wrong with it.
local function given_params(path, options)
  local given = options.settings
  if not given then
    local copy, fault = parameters.copy(options.params or {})
    if not copy then return nil, fault end
    given = settings.of(copy)
  end
  return declared.new(given, {
    path = path, policy = base_name(path), takes_what_fits = options.is_candidate,
  })
end

--- What a generation is made of: the sandbox, and the libraries that the file sees in it.
local function new_parts(path, options)
  local params, fault = given_params(path, options)
  if not params then return refused { file = path, key = fault.key, message = fault.message } end
  local library, noted = stages.library()
  local own_classify, originals = classify.new()
  return {
    path = path, declared = params, settings = params.given,
    noted = noted, library = own_classify, classifiers = originals,
    sandbox = sandbox.new {
      root = options.root or path:match("^(.*)/[^/]*$") or ".",
      read = options.read or read_file,
      budget = options.budget,
      globals = {
        classify = own_classify, fallback = library,
        params = params.params, route = route.new(),
      },
    },
  }
end

--- Checks what the file returned; adds what it comes to to the parts.
local function check(parts, given, report)
  local values = validate.values(given, report)
  check_name(values, parts.path, report)
  check_shadow(values, report)
  together.check(values, given, report)
  parts.values, parts.stages, parts.shown = values, {}, {}
  if values.fallback then
    parts.stages, parts.shown = stages.of(values.fallback, parts.noted, parts.sandbox, report)
  end
  verdicts.check(parts.classifiers, report)
  generation.judge(parts, report)
end

local function hash_of(text, parts)
  local texts = { text }
  for _, source in ipairs(parts.sandbox.sources) do
    texts[#texts + 1] = source.path
    texts[#texts + 1] = source.text
  end
  texts[#texts + 1] = parts.params_text
  return core.fingerprint(unpack(texts))
end

--- The shadow policy of one that is right.  What is wrong with it is no fault of that one.
local function candidate_of(parts, options)
  local file = parts.values.shadow
  if not file or options.is_candidate then return nil end
  local path = (parts.path:match("^(.*/)[^/]*$") or "") .. file
  local loaded, err = policy.load(path, {
    settings = parts.settings, root = parts.sandbox.root, read = options.read,
    budget = options.budget, is_candidate = true, strict = options.strict,
  })
  return {
    file = file, path = path, policy = loaded or nil, error = err,
    hash = loaded and loaded.hash or core.fingerprint(tostring(err)),
  }
end

--- The policy goes with its candidate: another of these is another generation of it.
local function with_candidate(made, candidate)
  if not candidate then return made end
  made.candidate, made.hash = candidate, core.fingerprint(made.hash, candidate.hash)
  made.sources[#made.sources + 1] = candidate.path
  local err = candidate.error
  for _, one in ipairs(err and (err.all or { err }) or {}) do
    made.warnings[#made.warnings + 1] = ("shadow: %s"):format(tostring(one))
  end
  return made
end

--- Tries the functions of one that is right.  Answers what is wrong with them, if anything.
local function try(made, text, line_of)
  local path, problems = made.path, {}
  local reads = trying.policy(made, function(key, message)
    made.warnings[#made.warnings + 1] = ("%s:%d: %s%s"):format(path, line_of(key), key, message)
  end)
  sandbox.unwarn(made.warned)
  for i, read in ipairs(reads) do
    problems[i] = problem.new {
      file = path, line = lines.of_field(text, read.field) or line_of(read.key), key = read.key,
      message = read.message,
    }
  end
  return problems[1] and problem.error(problems)
end

---@param text string
---@param path string
---@param options neap.policy.Options
local function parse(text, path, options)
  local parts, err = new_parts(path, options)
  if not parts then return nil, err end
  local ok, given = sandbox.load(parts.sandbox, text, path)
  parts.params = parts.declared:close(ok)
  parts.params_text = parameters.text(parts.params)
  if parts.declared.problems[1] then return nil, problem.error(parts.declared.problems) end
  if not ok then return nil, problem.error { placed.of_lua(path, given) } end
  local report, problems, line_of = placed.report(path, text)
  if type(given) ~= "table" then
    local message = "returns %s: a policy file returns a table, return { name = %s, ... }"
    return refused {
      file = path, line = line_of(""), value = given,
      message = message:format(shown(given), shown(base_name(path))),
    }
  end
  check(parts, given, report)
  parts.rules = #problems == 0 and together.rules(parts.values, report)
  if #problems > 0 then return nil, problem.error(problems) end
  parts.line_of, parts.hash = line_of, hash_of(text, parts)
  local made = generation.new(parts)
  if options.strict then
    err = try(made, text, line_of)
    if err then return nil, err end
  end
  return with_candidate(made, candidate_of(parts, options))
end

--- A policy from a text.
---@param text string
---@param path string the file's name in errors; if it ends in .lua, the policy's name must match
---@param options? neap.policy.Options
---@return neap.Policy|nil, neap.Problem|nil err
function policy.parse(text, path, options)
  return parse(text, (path:gsub("^[@=]", "")), options or {})
end

--- A policy from a file.
---@param path string
---@param options? neap.policy.Options
---@return neap.Policy|nil, neap.Problem|nil err
function policy.load(path, options)
  options = options or {}
  local text, message = (options.read or read_file)(path)
  if text then return parse(text, path, options) end
  return refused { file = path, message = placed.without_path(tostring(message), path) }
end

return policy
