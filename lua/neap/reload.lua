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

local params_file = require "neap.params_file"
local policy_files = require "neap.policy_files"
local watched = require "neap.watched"

local reload = {}

local SCAN_MS = 2000 -- the longest time between two looks
local GONE_MS = 100 -- a file is missed after this long: saving may delete and create,
local ORPHAN_MS = 10000 -- and its policy is an orphan after this long

---@alias neap.reload.kind
---| "reloaded"      # a policy has a new generation
---| "reload_failed" # a changed file was refused, the last good policy serves
---| "gone"          # a file is gone, its policy serves
---| "orphaned"      # … and has been for 10 s
---| "back"          # a file is again what the serving policy was loaded from

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
---@field params? string a Lua file that returns { policy name = params }
---@field load? fun(path: string, params: table|nil, read: function): table|nil, any by neap.policy
---@field adopt fun(policy: table, path: string): boolean|nil, string|nil
---@field has_others? boolean there are guards of no file here, which fallbacks may name
---@field now fun(): integer
---@field files? neap.reload.files
---@field on_event? fun(event: neap.reload.event)

local Reloader = {}
Reloader.__index = Reloader

-- ---- Paths ------------------------------------------------------------------------------------

local function tell(self, item, kind, text)
  if not self.on_event then return end
  self.on_event {
    kind = kind,
    policy = item.name,
    path = item.path,
    hash = item.policy and item.policy.hash or "",
    text = text,
    at_ms = self.now(),
  }
end

local function fail(self, item, err)
  item.error = tostring(err)
  item.failures = item.failures + 1
  tell(self, item, "reload_failed", item.error)
end

--- The file is as it was when the serving policy was loaded from it.
local function restored(self, item)
  local was_wrong = item.error or item.is_gone
  item.error, item.is_gone, item.is_orphaned = nil, nil, nil
  if was_wrong then tell(self, item, "back", item.path .. ": is again what is serving") end
end

--- Loads the policy from what was seen: policy | nil, err.  Changes nothing that serves.
local function load(self, item, texts)
  local params = self.params and self.params.value[item.name]
  local noted, read = watched.reader(self.files, texts)
  local policy, err = self.load(item.path, params, read)
  if noted[item.path] == nil then noted[item.path] = texts[item.path] end
  item.attempted, item.candidate, item.params = noted, nil, params
  return policy, err
end

local function names_of(self)
  local names = {}
  for i, item in ipairs(self.items) do names[i] = item.name end
  return names
end

--- What is wrong with the guards that its fallbacks name; nil if they will be there.
local function missing_guard(self, item, policy)
  if self.has_others then return nil end
  local fault
  fault, item.lacks = policy_files.missing_guard(policy, names_of(self))
  return fault
end

--- Whether the policy that the file was refused for lack of is there by now.
local function has_come(self, item)
  if not item.lacks then return false end
  for _, name in ipairs(names_of(self)) do
    if name == item.lacks then return true end
  end
  return false
end

local function adopt(self, item, policy)
  local ok, err = self.adopt(policy, item.path)
  if not ok then return nil, err end
  item.policy, item.name, item.loaded_at_ms = policy, policy.name, self.now()
  item.error, item.is_gone, item.is_orphaned = nil, nil, nil
  return true
end

local function attempt(self, item, texts)
  local policy, err = load(self, item, texts)
  item.lacks = nil
  err = err or missing_guard(self, item, policy)
  if err then return fail(self, item, err) end
  if item.policy and policy.hash == item.policy.hash then return restored(self, item) end
  local is_first = not item.policy
  local ok, message = adopt(self, item, policy)
  if not ok then return fail(self, item, message) end
  item.reloads = item.reloads + 1
  tell(self, item, "reloaded",
    ("%s: %s, %s"):format(item.path, is_first and "loaded" or "reloaded", policy.hash))
end

--- The file itself is not there.  Answers when to look again.
local function missing(self, item, now_ms)
  item.candidate = nil
  item.missing_ms = item.missing_ms or now_ms
  if not item.policy then return nil end
  local for_ms = now_ms - item.missing_ms
  if for_ms < GONE_MS then return item.missing_ms + GONE_MS end
  if not item.is_gone then
    item.is_gone = true
    tell(self, item, "gone", item.path .. ": is gone, its policy goes on serving")
  end
  if item.is_orphaned then return nil end
  if for_ms < ORPHAN_MS then return item.missing_ms + ORPHAN_MS end
  item.is_orphaned = true
  tell(self, item, "orphaned", item.path .. ": has been gone for 10 s, its policy is orphaned")
end

--- One item, one look.  Answers when to look again, nil if that can wait.
local function look_at(self, item, now_ms, is_forced)
  local texts = watched.contents(self.files, item)
  if texts[item.path] == false then return missing(self, item, now_ms) end
  item.missing_ms = nil
  local at_ms = watched.due_ms(item, texts, now_ms)
  -- Nothing new in the files, but maybe in what is set for them; or somebody wants it tried again.
  local is_set_anew = self.params and item.params ~= self.params.value[item.name]
  if not at_ms and (is_set_anew or (is_forced and item.error) or has_come(self, item)) then
    at_ms = now_ms
  end
  if not at_ms then
    if item.is_gone then restored(self, item) end
    return nil
  end
  if not is_forced and now_ms < at_ms then return at_ms end
  attempt(self, item, texts)
end

local function new_item(path)
  return { path = path, name = policy_files.name_of(path), reloads = 0, failures = 0 }
end

-- ---- Parameters -------------------------------------------------------------------------------

--- The value of the parameter file: nil, err if it does not hold one, or names no policy here.
local function evaluate_params(self, texts)
  local path = self.params.path
  local text, err = watched.text(texts[path], path)
  if not text then return nil, err end
  local value
  value, err = params_file.parse(text, path)
  if not value then return nil, err end
  err = params_file.stranger(value, names_of(self), text, path)
  if err then return nil, tostring(err) end
  return value
end

local function attempt_params(self, texts)
  local item = self.params
  item.attempted, item.candidate = texts, nil
  local value, err = evaluate_params(self, texts)
  if not value then return fail(self, item, err) end
  item.value, item.error = value, nil
end

-- ---- Looking ----------------------------------------------------------------------------------

local function add_file(self, path)
  if self.by_path[path] then return end
  local item = new_item(path)
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
  if self.params then
    local texts = watched.contents(self.files, self.params)
    local at_ms = watched.due_ms(self.params, texts, now_ms)
    if at_ms and (is_forced or now_ms >= at_ms) then
      attempt_params(self, texts)
    elseif at_ms then
      next_ms = math.min(next_ms, at_ms)
    end
  end
  for _, item in ipairs(self.items) do
    local at_ms = look_at(self, item, now_ms, is_forced)
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
  local after, failed = 0, self.params and self.params.error and 1 or 0
  for _, item in ipairs(self.items) do
    after = after + item.reloads
    if item.error then failed = failed + 1 end
  end
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
  if self.params then add(self.params.path) end
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

--- One row for each file, the parameter file included, for people who ask.
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
    }
  end
  for _, item in ipairs(self.items) do add(item) end
  if self.params then add(self.params) end
  return rows
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
    if text then loaded[i], err = load(self, item, texts) end
    if loaded[i] then err = missing_guard(self, item, loaded[i]) end
    if err then errors[#errors + 1] = tostring(err) end
  end
  if #errors > 0 then return errors end
  for i, item in ipairs(self.items) do
    local ok, err = adopt(self, item, loaded[i])
    if not ok then errors[#errors + 1] = tostring(err) end
  end
  return errors
end

local function load_policy(path, params, read)
  return require("neap.policy").load(path, { params = params, read = read })
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
    by_path = {},
  }, Reloader)
  local errors = find(self, options.paths)
  if options.params then
    self.params = new_item(options.params)
    self.params.value = {}
    attempt_params(self, watched.contents(self.files, self.params))
    errors[#errors + 1] = self.params.error
  end
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
    load = function(path, _, read) return load_policy(path, by_path[path].policy.params, read) end,
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
