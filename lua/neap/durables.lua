--- What of a guard's fallback chain is in files: its last good answers, its queues.  They belong to
--- the guard and outlive its policy's generations: a queue that the policy no longer has is still
--- worked off.

local core = require "neap.core"
local kept = require "neap.kept"
local queue = require "neap.queue"

local durables = {}

local NO_DIRECTORY = "%s: no file is kept, as there is no state_dir%s"
local NO_REPLAY = "fallback.queue %s: nothing is queued, as nobody here makes calls again (replay)"

---@class neap.Durables
---@field queues table<string, neap.Queue> by name
---@field private files neap.Kept[] of last good answers
local Durables = {}
Durables.__index = Durables

local function path_of(self, name) return self.state_dir .. "/" .. name end

local function keep(self, stage, store, now_ms)
  local name = stage.persist
  if self.kept_by_name[name] then return self.kept_by_name[name]:attach(store) end
  if not self.state_dir then
    return self.warn("persist " .. name, NO_DIRECTORY:format("persist = " .. name, ""))
  end
  local file = kept.open({
    store = store, path = path_of(self, name), host = self.host, pack = self.pack,
    unpack = self.unpack, warn = function(text) self.warn("persist " .. name, text) end,
  }, now_ms)
  self.kept_by_name[name] = file
  self.files[#self.files + 1] = file
end

local function open_queue(self, stage, now_ms)
  local name = stage.queue
  local found = self.queues[name]
  if found then return found:limits(stage) end
  if not self.state_dir then
    return self.warn("queue " .. name,
      NO_DIRECTORY:format("fallback.queue " .. name, ": the stage declines"))
  elseif not self.replay then
    return self.warn("queue " .. name, NO_REPLAY:format(name))
  end
  self.queues[name] = queue.open(stage, {
    path = path_of(self, name), host = self.host, replay = self.replay,
    on_due = function() self.on_due() end,
    warn = function(text) self.warn("queue " .. name, text) end,
  }, now_ms)
end

--- Opens what a generation's stages have in files.
---@param stages neap.Stage[]
---@param stores table<table, neap.Store> by stage
---@param now_ms number
function Durables:adopt(stages, stores, now_ms)
  for _, stage in ipairs(stages) do
    if stage.persist then keep(self, stage, stores[stage], now_ms) end
    if stage.kind == "queue" then open_queue(self, stage, now_ms) end
  end
  self.on_due()
end

local function sooner(a, b)
  if not a or not b then return a or b end
  return math.min(a, b)
end

--- Does what is due; answers when to ask again, nil: not before something has changed.
---@param now_ms number
---@return number|nil wait_ms
function Durables:tend(now_ms)
  local wait_ms
  for _, one in pairs(self.queues) do wait_ms = sooner(wait_ms, one:tend(now_ms)) end
  for _, one in ipairs(self.files) do wait_ms = sooner(wait_ms, one:tend(now_ms)) end
  return wait_ms
end

--- The queues, by name: what waits in each, and what this process has made of its calls.
---@return { name: string, waiting: integer, bytes: integer, done: integer, dead: integer }[]
function Durables:rows()
  local rows = {}
  for name, one in pairs(self.queues) do
    rows[#rows + 1] = {
      name = name, waiting = one.count, bytes = one.bytes,
      done = one.counts.done, dead = one.counts.dead,
    }
  end
  table.sort(rows, function(a, b) return a.name < b.name end)
  return rows
end

--- The breaker lets calls through again.
function Durables:hurry()
  for _, one in pairs(self.queues) do one:hurry() end
  self.on_due()
end

--- Writes everything, waits for the disk, and lets go of the files.
---@param now_ms number
function Durables:close(now_ms)
  for _, one in ipairs(self.files) do
    one:flush(now_ms)
    one:close()
  end
  for _, one in pairs(self.queues) do one:close() end
  self.files, self.queues, self.kept_by_name, self.state_dir = {}, {}, {}, nil
end

---@class (exact) neap.durables.Options
---@field state_dir? string
---@field host neap.Host
---@field warn fun(sort: string, text: string)
---@field replay? function as of neap.queue.Options
---@field pack? function as of neap.kept.Options
---@field unpack? function

--- Raises if the directory is none that files can be kept in.
---@param options neap.durables.Options
---@return neap.Durables
function durables.new(options)
  if options.state_dir then
    local ok, message = core.check_directory(options.state_dir)
    if not ok then error("state_dir " .. message, 0) end
  end
  return setmetatable({
    state_dir = options.state_dir, host = options.host, warn = options.warn,
    replay = options.replay, pack = options.pack, unpack = options.unpack,
    on_due = function() end, queues = {}, files = {}, kept_by_name = {},
  }, Durables)
end

return durables
