--- Hot reload: policy files are judged by what is in them, and by nothing else.
--
--   a look      reads every file.  Any timer may ask for one, any file event, as often as it likes:
--                 as attempted before  -> nothing: touch, chmod and a rewrite change nothing
--                 something else       -> wait until it has been the same for 100 ms, but not
--                                         longer than 1 s, then attempt it
--   an attempt  loads the policy apart, which tries it, and swaps one reference.  If anything is
--               wrong the last good policy goes on serving; the error is kept, told and counted.
--
-- What an attempt has read (the file, its modules, the parameters) is what later looks compare
-- with: a change made while a policy was being loaded is found by the next look.
--
-- No clock, timer, file or event loop of its own: all are handed in.  With luv: neap.watch.

local attempts = require "neap.attempts"
local lines = require "neap.lines"
local params_file = require "neap.params_file"
local policy_files = require "neap.policy_files"
local problem = require "neap.problem"
local settings = require "neap.settings"
local watched = require "neap.watched"

local reload = {}

local SCAN_MS = 2000 -- the longest time between two looks

---@alias neap.reload.kind
---| "reloaded"      # a policy has a new generation
---| "reload_failed" # a changed file was refused, the last good policy serves
---| "gone"          # a file is gone, its policy serves
---| "orphaned"      # … and has been for 10 s
---| "back"          # a file is again what the serving policy was loaded from
---| "params"        # other params are in force: what they were and are, and who set them

---@class (exact) neap.reload.event
---@field kind neap.reload.kind
---@field policy string name of the policy
---@field path string
---@field hash string of the generation in force; "" if there is none
---@field text string one line that says it all
---@field at_ms integer

---@class (exact) neap.reload.files
---@field read fun(path: string, max_bytes: integer): string|nil, string|nil, boolean|nil
---@field list fun(path: string): string[]|nil, string|nil

---@class (exact) neap.reload.options
---@field paths string[] policy files, and directories of them (*.lua, not below)
---@field params? string|string[] Lua files that return { policy name = params }: of what several
---  say, the last counts; tables are merged, name by name
---@field environment? table<string, string> the variables NEAP_PARAM_POLICY__NAME; without: those
---  of the process, as they are now
---@field load? fun(path: string, given: neap.Setting[], read: function): table|nil, any by
---  neap.policy
---@field adopt fun(policy: table, path: string): boolean|nil, string|nil
---@field has_others? boolean there are guards of no file here, which fallbacks may name
---@field now fun(): integer
---@field files? neap.reload.files
---@field on_event? fun(event: neap.reload.event)

local Reloader = {}
Reloader.__index = Reloader

local function names_of(self)
  local names = {}
  for i, item in ipairs(self.items) do names[i] = item.name end
  return names
end

-- ---- Parameters -------------------------------------------------------------------------------

--- The value of a parameter file: nil, err if it does not hold one, or names no policy here.
local function evaluate_params(self, file, texts)
  local path = file.path
  local text, err = watched.text(texts[path], path)
  if not text then return nil, err end
  local value
  value, err = params_file.parse(text, path)
  if not value then return nil, err end
  err = params_file.stranger(value, names_of(self), text, path)
  if err then return nil, tostring(err) end
  return value, text
end

local function attempt_params(self, file, texts)
  file.attempted, file.candidate = texts, nil
  local value, text = evaluate_params(self, file, texts)
  if not value then return attempts.fail(self, file, text) end
  file.value, file.error, file.lines = value, nil, lines.of(text)
  self.round = self.round + 1
end

-- ---- Looking ----------------------------------------------------------------------------------

local function add_file(self, path)
  if self.by_path[path] then return end
  local item = attempts.new(path)
  self.by_path[path] = item
  self.items[#self.items + 1] = item
end

--- Adds what is new in a directory, but not what editors leave there.  Answers how many policy
--- files it has.
local function add_directory(self, directory)
  local names, count = self.files.list(directory) or {}, 0
  table.sort(names)
  for _, name in ipairs(names) do
    if policy_files.is_one(name) then
      add_file(self, policy_files.join(directory, name))
      count = count + 1
    end
  end
  return count
end

--- Adds files that have come to the watched directories, drops those that went before they loaded.
local function refresh(self)
  for _, directory in ipairs(self.directories) do add_directory(self, directory) end
  for i = #self.items, 1, -1 do
    local item = self.items[i]
    if item.missing_ms and not item.policy then
      table.remove(self.items, i)
      self.by_path[item.path] = nil
    end
  end
end

local function look(self, is_forced)
  local now_ms = self.now()
  local next_ms = now_ms + SCAN_MS
  refresh(self)
  for _, file in ipairs(self.param_files) do
    local texts = watched.contents(self.files, file)
    local at_ms = watched.due_ms(file, texts, now_ms)
    if at_ms and (is_forced or now_ms >= at_ms) then
      attempt_params(self, file, texts)
    elseif at_ms then
      next_ms = math.min(next_ms, at_ms)
    end
  end
  for _, item in ipairs(self.items) do
    local at_ms = attempts.look_at(self, item, now_ms, is_forced)
    if at_ms then next_ms = math.min(next_ms, at_ms) end
  end
  return math.max(1, next_ms - now_ms)
end

--- Looks at every file once.  Answers in how many ms to look again, 2,000 at most; look sooner if
--- anything is said to have changed in what is watched().
---@return integer wait_ms
function Reloader:look()
  return look(self, false)
end

--- Looks at every file and attempts what has changed, settled or not, and what was refused before.
---@return integer reloaded, integer failed policies with a new generation; files in error now
function Reloader:force()
  local before = 0
  for _, item in ipairs(self.items) do before = before + item.reloads end
  look(self, true)
  local after, failed = 0, 0
  for _, item in ipairs(self.items) do
    after = after + item.reloads
    if item.error then failed = failed + 1 end
  end
  for _, file in ipairs(self.param_files) do failed = failed + (file.error and 1 or 0) end
  return after - before, failed
end

--- What was read, and where files may come to: events there are worth a look.
---@return string[] directories, string[] files both sorted
function Reloader:watched()
  local seen, files, directories = {}, {}, {}
  local function add(path)
    if not seen[path] then
      seen[path] = true
      files[#files + 1] = path
    end
  end
  for i, directory in ipairs(self.directories) do directories[i] = directory end
  for _, item in ipairs(self.items) do
    add(item.path)
    for path in pairs(item.attempted or {}) do add(path) end
  end
  for _, file in ipairs(self.param_files) do add(file.path) end
  table.sort(directories)
  table.sort(files)
  return directories, files
end

---@class (exact) neap.reload.row
---@field path string
---@field name string
---@field hash? string nil: never loaded
---@field loaded_at_ms? integer
---@field error? string why the file as it is now does not serve
---@field is_gone boolean
---@field is_orphaned boolean
---@field reloads integer
---@field failures integer
---@field params_version? integer of a policy: how many sets of params have been in force
---@field params_at_ms? integer since when the last one is

--- One row for each file, the parameter files included, for people who ask.
---@return neap.reload.row[]
function Reloader:rows()
  local rows = {}
  local function add(item)
    rows[#rows + 1] = {
      path = item.path,
      name = item.name,
      hash = item.policy and item.policy.hash,
      loaded_at_ms = item.loaded_at_ms,
      error = item.error,
      is_gone = item.is_gone or false,
      is_orphaned = item.is_orphaned or false,
      reloads = item.reloads,
      failures = item.failures,
      params_version = item.policy and item.params_version,
      params_at_ms = item.policy and item.params_at_ms,
    }
  end
  for _, item in ipairs(self.items) do add(item) end
  for _, file in ipairs(self.param_files) do add(file) end
  return rows
end

-- ---- Operators --------------------------------------------------------------------------------

local NO_DECLARATION = "%s declares no parameters, so nothing can be checked: it needs "
  .. "params.declare { … } at the top of %s"

local function item_named(self, name)
  for _, item in ipairs(self.items) do
    if item.name == name and item.policy then return item end
  end
end

--- The params of a policy: what is declared, in force and where it is from; nil: no such policy.
---@param name string
---@return neap.Policy|nil policy, neap.reload.row|nil row
function Reloader:params(name)
  local item = item_named(self, name)
  if not item then return nil end
  for _, row in ipairs(self:rows()) do
    if row.path == item.path then return item.policy, row end
  end
end

--- Puts to work what comes of a policy's files, as they serve, the parameter files too, and of what
--- operators have set now.
local function reload_settings(self, item)
  local given = attempts.with_operators(item, item.served_settings)
  local _, read = watched.reader(self.files, item.served)
  local policy, err = self.load(item.path, given, read)
  err = err or attempts.guard_fault(self, policy)
  if err then return nil, err end
  local ok, changes = true, {}
  if policy.hash ~= item.policy.hash then ok, changes = attempts.adopt(self, item, policy) end
  if not ok then return nil, changes end
  item.policy = policy
  -- What is set may be what a newer file is refused for: the next look tries that again.
  if item.error then item.round = nil else item.given = settings.text(given) end
  return changes
end

--- Sets params of one policy, until the program ends: all of the change, or nothing of it.  They go
--- before what files and the environment say.  It is a reload of that policy, from its files as
--- they serve: nothing else is looked at.
---@param name string
---@param change neap.settings.change
---@return { name: string, old: any, new: any, from: string }[]|nil changes, any err
function Reloader:set_params(name, change)
  local item = item_named(self, name)
  if not item then return nil, "there is no policy " .. problem.shown(name) end
  if not item.policy.declares then return nil, NO_DECLARATION:format(item.name, item.path) end
  local was = item.set
  local set, err = settings.changed(was, change)
  if not set then return nil, err end
  item.set = set
  local changes, fault = reload_settings(self, item)
  if not changes then item.set = was end
  return changes, fault
end

-- ---- Opening ----------------------------------------------------------------------------------

--- Finds the files: errors.
local function find(self, paths)
  local errors = {}
  if #paths == 0 then errors[1] = "no policy files or directories are given" end
  for _, path in ipairs(paths) do
    local names = self.files.list(path)
    if names then
      self.directories[#self.directories + 1] = path
      if add_directory(self, path) == 0 then
        errors[#errors + 1] = path .. ": has no policy file (*.lua)"
      end
    else
      add_file(self, path)
    end
  end
  return errors
end

--- Loads everything, then puts everything to work: errors.
local function start(self)
  local errors, loaded = {}, {}
  for i, item in ipairs(self.items) do
    local texts = watched.contents(self.files, item)
    local text, err = watched.text(texts[item.path], item.path)
    if text then loaded[i], err = attempts.load(self, item, texts) end
    if loaded[i] then err = attempts.guard_fault(self, loaded[i]) end
    if err then errors[#errors + 1] = tostring(err) end
  end
  if #errors > 0 then return errors end
  for i, item in ipairs(self.items) do
    local ok, err = attempts.adopt(self, item, loaded[i])
    if ok then attempts.is_right(item) else errors[#errors + 1] = tostring(err) end
  end
  return errors
end

--- Reads all that is set for the policies: errors.
local function read_settings(self, options)
  local errors, paths = {}, options.params or {}
  for i, path in ipairs(type(paths) == "table" and paths or { paths }) do
    local file = attempts.new(path)
    self.param_files[i] = file
    attempt_params(self, file, watched.contents(self.files, file))
    errors[#errors + 1] = file.error
  end
  local by_policy, problems =
    settings.environment(options.environment or settings.variables(), names_of(self))
  for _, one in ipairs(problems) do errors[#errors + 1] = tostring(one) end
  self.environment = by_policy
  return errors
end

local function load_policy(path, given, read)
  return require("neap.policy").load(path, { settings = given, read = read })
end

--- Loads every policy.  All of them must be good: later a bad one leaves the last good one serving,
--- but there is none yet.
---@param options neap.reload.options
---@return table|nil reloader, string[]|nil errors
function reload.open(options)
  local self = setmetatable({
    load = options.load or load_policy,
    adopt = options.adopt,
    has_others = options.has_others,
    now = options.now,
    files = options.files or require "neap.core",
    directories = {}, -- as given
    items = {}, -- in the order they were found
    param_files = {}, -- in the order they are laid over each other
    round = 0, -- how often one of these was read anew
    environment = {}, -- what it sets, by policy: read once
    by_path = {},
  }, Reloader)
  local errors = find(self, options.paths)
  for _, err in ipairs(read_settings(self, options)) do errors[#errors + 1] = err end
  if #errors == 0 then errors = start(self) end
  if #errors > 0 then return nil, errors end
  self.on_event = options.on_event
  return self
end

--- The same for guards that a program has made itself, of policies from files.
--
--   local reloader = reload.guards({ flags, payments }, { now = clock.precise })
--   watch.start(reloader)                            -- or ask reloader:look() from any timer
--
---@param guards neap.Guard[]
---@param options { now: (fun(): integer), on_event: fun(event: neap.reload.event)|nil }
---@return table|nil reloader, string[]|nil errors
function reload.guards(guards, options)
  local by_path, paths = {}, {}
  for i, guard in ipairs(guards) do
    paths[i] = guard.policy.path
    by_path[guard.policy.path] = guard
  end
  return reload.open {
    paths = paths,
    now = options.now,
    has_others = true, -- a program's further guards
    environment = {}, -- a program's params are its own
    load = function(path, _, read)
      return load_policy(path, by_path[path].policy.settings, read)
    end,
    adopt = function(policy, path)
      local guard = by_path[path]
      if policy.hash ~= guard.policy.hash then guard:adopt(policy) end
      return true
    end,
    on_event = function(event)
      if event.kind == "reload_failed" then by_path[event.path]:adopt_failed(event.text) end
      if options.on_event then options.on_event(event) end
    end,
  }
end

return reload
