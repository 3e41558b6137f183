--- Calls that wait for a dependency to come back: a durable queue in one file.
--
--   push      appended to NAME.queue                                 E  the call
--   durable   on the disk; calls that wait at the same time share one sync
--   replay    the oldest call, made again, one at a time:
--               done            ->  finished                         D  its number
--               its own fault   ->  tried again, so many times       A  its number
--               out of tries, or too old  ->  NAME.dead, finished    X  the call, in NAME.dead
--               the dependency's fault  ->  stays the oldest, made ever more seldom
--               refused  ->  stays the oldest, for as long as the breaker says
--
-- Calls finish in the order in which they came, so what waits is all behind the last D.  A process
-- killed between a call and its D makes that call again: its id says so to whoever looks at it.
-- When nothing waits the file is cut to its first line; until then it only grows, to twice
-- max_bytes at most.  What is in it, and what becomes of a damaged one: neap/queue_file.lua.
--
-- A call's age goes on across a restart by the system's clock, and by nothing that can be set while
-- a process has it.
--
-- No timer, clock or network of its own: whoever has them calls tend() and is asked to replay.

local core = require "neap.core"
local data = require "neap.data"
local queue_file = require "neap.queue_file"
local records = require "neap.records"

local queue = {}

local HEADER, MOST_ENTRY = queue_file.HEADER, queue_file.MOST_ENTRY
local RETRY_MS, SOON_MS, MOST_MS = 1000, 1, 60000
local REOPEN_MS = 5000
local REMOVED = "%s.queue: was removed: nothing is queued until the calls in it are made (%d)"
local UNSAID = "%s.queue: %s: calls that are done may be made again after a restart"

---@alias neap.replay.Verdict
---| "done"
---| "own"   # the dependency answered that this call is wrong
---| "later" # refused, failed, too late

---@class (exact) neap.Queued a call that was put into the queue
---@field id string the same for every time it is made again
---@field seq integer
---@field at integer when it came, in ms since 1970
---@field key string of its breaker
---@field args? table of a Lua guard: what the function was given; .n how many
---@field request? table of the sidecar: { method =, target =, headers =, body = }

---@class neap.Queue
---@field name string
---@field count integer calls that wait
---@field bytes integer of them
---@field private over table<string, true> ids of calls that are not to be made, though the file
---  can't say so: they were done, or whoever made them was told that they are not queued
---@field private unsaid table<string, integer> those of them that were done: their numbers
local Queue = {}
Queue.__index = Queue

-- ---- Opening ----------------------------------------------------------------------------------

--- A file that is being synced is closed when that has ended: its descriptor must not become
--- another file's meanwhile.
local function close(self)
  if self.file and not self.is_syncing then self.file:close() end
  self.file = nil
end

--- Takes up what was found in the file.
local function settle(self, found, now_ms)
  local wall_ms, came_ms = core.wall_ms(), {}
  for _, one in pairs(self.waiting) do came_ms[one.seq] = one.came_ms end
  self.waiting, self.first, self.count, self.bytes = found.waiting, 1, #found.waiting, 0
  self.attempts, self.cancelled, self.done_seq = found.attempts, found.cancelled, found.done_seq
  for _, one in ipairs(found.waiting) do
    self.bytes = self.bytes + one.size
    one.came_ms = came_ms[one.seq] or now_ms - math.max(0, wall_ms - one.at)
    one.at = nil
  end
  self.last_seq = math.max(self.last_seq or 0, found.last_seq) -- given once, or ids would be twice
  self.synced_seq = self.last_seq
end

--- Opens the files.  Answers what is wrong, if it can't.
local function open(self, now_ms)
  local lock, message = core.open_file(self.path .. ".lock")
  if not lock then return message end
  if not lock:lock() then
    lock:close()
    return self.path .. ".lock: another process has this queue"
  end
  self.file, message = core.open_file(self.path .. ".queue")
  if not self.file then
    lock:close()
    return message
  end
  self.lock = lock
  local found, fault = queue_file.read(self)
  if not found then
    close(self)
    lock:close()
    self.lock = nil
    return ("%s.queue: %s"):format(self.path, fault)
  end
  settle(self, found, now_ms)
  return nil
end

--- Lets go of the files: another process may have them.
function Queue:close()
  close(self)
  if self.lock then self.lock:close() end
  self.lock = nil
end

local function try_open(self, now_ms)
  local message = open(self, now_ms)
  self.next_open_ms = now_ms + REOPEN_MS
  if message then
    self.count, self.bytes = 0, 0
    self.warn(message .. ": nothing can be queued")
  end
end

--- It can't be written to any more: what is in the file counts, from when it is opened again.
local function give_up(self, message, now_ms)
  self.warn(("%s.queue: %s"):format(self.path, message))
  self:close()
  self.next_open_ms = now_ms + REOPEN_MS
end

-- ---- Putting in -------------------------------------------------------------------------------

--- Where it is, for whoever must not see it half done: id and number of a call to come.
local function next_id(self)
  local seq = self.last_seq + 1
  return ("%014x%08x"):format(self.seed, seq % 2^32), seq
end

--- Appends a call; it is not durable yet.
---@param call { key: string, args?: table, request?: table }
---@param now_ms integer
---@return neap.Queued|nil entry
---@return "full"|string|nil message why not
function Queue:push(call, now_ms)
  local is_lost = self.file and self.file:is_removed()
  if is_lost and self.count > 0 then return nil, REMOVED:format(self.path, self.count) end
  if is_lost then self:close() end
  if not self.file then
    if is_lost or now_ms >= self.next_open_ms then try_open(self, now_ms) end
    if not self.file then return nil, "the queue is not open" end
  end
  local id, seq = next_id(self)
  local entry = {
    id = id, seq = seq, at = core.wall_ms(), key = call.key, args = call.args,
    request = call.request,
  }
  local text, message = data.text(entry)
  if not text then return nil, "the call " .. message end
  if #text > MOST_ENTRY then return nil, "the call is too large" end
  text = records.text("E", text)
  local is_full = self.count >= self.max_entries or self.bytes + #text > self.max_bytes
    or self.file:size() + #text > 2 * self.max_bytes
  if is_full then return nil, "full" end
  local offset = self.file:size()
  local ok
  ok, message = self.file:append(text)
  if not ok then return nil, ("%s.queue: %s"):format(self.path, message) end
  self.last_seq = seq
  self.count, self.bytes = self.count + 1, self.bytes + #text
  self.waiting[self.first + self.count - 1] = {
    seq = seq, size = #text, offset = offset, came_ms = now_ms,
  }
  return entry
end

local function tell(self, list, ok, message)
  for _, one in ipairs(list) do
    if not ok then self.over[one.id] = true end
    one.done(ok, message)
  end
end

--- Has all that was appended put on the disk, and tells all who wait for it.
local function sync_round(self, now_ms)
  local list, upto, file = self.syncers, self.last_seq, self.file
  self.syncers = {}
  local function ended(ok, message)
    self.is_syncing = false
    if file ~= self.file then
      file:close()
      ok, message = nil, "the queue was closed"
    elseif ok then
      self.synced_seq = math.max(self.synced_seq, upto)
    else
      give_up(self, message, now_ms)
    end
    if not self.file then
      for _, one in ipairs(self.syncers) do list[#list + 1] = one end
      self.syncers = {}
    elseif self.syncers[1] then
      sync_round(self, now_ms)
    end
    tell(self, list, ok, message)
  end
  if not self.host.sync then return ended(file:sync()) end
  self.is_syncing = true
  self.host.sync(file:descriptor(), ended)
end

--- Calls done(true) when the call is on the disk, or done(nil, message): at once where the host has
--- no sync, which waits.
---@param entry neap.Queued
---@param now_ms integer
---@param done fun(ok: boolean|nil, message?: string)
function Queue:durable(entry, now_ms, done)
  if not self.file then return done(nil, "the queue is not open") end
  if entry.seq <= self.synced_seq then return done(true) end
  self.syncers[#self.syncers + 1] = { id = entry.id, done = done }
  if not self.is_syncing then sync_round(self, now_ms) end
end

--- Waits until the call is on the disk.
---@param entry neap.Queued
---@param now_ms integer
---@return boolean|nil ok, string|nil message
function Queue:commit(entry, now_ms)
  if not self.file then return nil, "the queue is not open" end
  local ok, message = self.file:sync()
  if not ok then
    self.over[entry.id] = true
    give_up(self, message, now_ms)
    return nil, message
  end
  self.synced_seq = math.max(self.synced_seq, entry.seq)
  return true
end

local function whole(n) return ("%d"):format(n) end

--- Takes a call back that nobody has been told is queued.
---@param entry neap.Queued
function Queue:cancel(entry)
  if entry.seq <= self.done_seq then return end
  self.cancelled[entry.seq] = true
  local is_written = self.file and self.file:append(records.text("C", whole(entry.seq)))
  if not is_written then self.over[entry.id] = true end
end

-- ---- Making calls again -----------------------------------------------------------------------

local function drop_first(self, seq)
  local first = self.waiting[self.first]
  self.waiting[self.first] = nil
  self.first = self.first + 1
  self.count, self.bytes, self.failures = self.count - 1, self.bytes - first.size, 0
  self.attempts[seq], self.cancelled[seq], self.done_seq = nil, nil, seq
  if self.count == 0 then self.waiting, self.first = {}, 1 end
end

--- Without room for that the file can't say that a call has been seen to: the next time there is
--- some, it does, of this one too.
local function note_done(self, entry)
  local ok, message = self.file:append(records.text("D", whole(entry.seq)))
  self.over[entry.id] = not ok or nil
  if ok then
    for id, seq in pairs(self.unsaid) do
      if seq <= entry.seq then self.over[id], self.unsaid[id] = nil, nil end
    end
    return
  end
  if not next(self.unsaid) then self.warn(UNSAID:format(self.path, message)) end
  self.unsaid[entry.id] = entry.seq
end

--- The oldest call has been seen to.
local function finish(self, entry)
  drop_first(self, entry.seq)
  local is_cut = self.count == 0 and not self.is_syncing and self.file:truncate(#HEADER)
  if is_cut then
    self.over, self.unsaid = {}, {}
  else
    note_done(self, entry)
  end
end

--- Writes a call down that will not be made.  It stays in the queue if that can't be done.
local function bury(self, entry, reason, now_ms)
  local ok, message = queue_file.bury(self, entry, reason)
  if not ok then
    self.next_ms = now_ms + MOST_MS
    self.warn(("%s.dead: %s"):format(self.path, message))
    return
  end
  self.counts.dead = self.counts.dead + 1
  self.warn(("call %s goes to the dead letters, %s.dead: %s"):format(entry.id, self.path, reason))
  finish(self, entry)
end

local function replayed(self, entry, verdict, reason, wait_ms, now_ms)
  self.is_replaying = false
  if not self.file then
    self.over[entry.id] = verdict == "done" or nil
    return
  end
  if entry.seq ~= (self.waiting[self.first] or {}).seq then return end
  if verdict == "done" then
    self.counts.done, self.next_ms = self.counts.done + 1, now_ms
    finish(self, entry)
  elseif verdict == "own" then
    local attempts = (self.attempts[entry.seq] or 0) + 1
    self.attempts[entry.seq] = attempts
    self.next_ms = now_ms + RETRY_MS
    if attempts >= self.limit then return bury(self, entry, reason, now_ms) end
    self.file:append(records.text("A", whole(entry.seq)))
  else
    if not wait_ms then -- it was made, and failed
      wait_ms = RETRY_MS * 2 ^ math.min(self.failures, 10)
      self.failures = self.failures + 1
    end
    self.next_ms = now_ms + math.max(SOON_MS, math.min(MOST_MS, wait_ms))
  end
end

--- The oldest call, if it is to be made now.
local function oldest(self, now_ms)
  local first = self.waiting[self.first]
  if first.seq > self.synced_seq then return nil end
  local text = self.file:read(first.offset, first.size)
  local mark, content = records.at(text or "", 1)
  local entry = mark == "E" and queue_file.entry(content)
  if not entry then
    give_up(self, ("cannot be read at byte %d"):format(first.offset), now_ms)
  elseif self.cancelled[first.seq] or self.over[entry.id] then
    finish(self, entry)
  elseif now_ms - first.came_ms > self.max_age_ms then
    bury(self, entry, ("expired after %d ms"):format(self.max_age_ms), now_ms)
  else
    return entry
  end
end

--- Does what is due; answers when to ask again, nil: not before something has been put in.
---@param now_ms integer
---@return integer|nil
function Queue:tend(now_ms)
  if not self.file then
    if now_ms >= self.next_open_ms then try_open(self, now_ms) end
    return self.file and SOON_MS or REOPEN_MS
  end
  if self.count == 0 then
    if self.file:size() > #HEADER and not self.is_syncing then self.file:truncate(#HEADER) end
    return nil
  end
  if self.is_replaying then return RETRY_MS end
  if now_ms < self.next_ms then return self.next_ms - now_ms end
  local entry = oldest(self, now_ms)
  if entry then
    self.is_replaying, self.counts.replayed = true, self.counts.replayed + 1
    local has_answered = false
    self.replay(entry, function(verdict, reason, wait_ms, at_ms)
      if has_answered then return end
      has_answered = true
      replayed(self, entry, verdict, reason, wait_ms, at_ms)
      self.on_due()
    end)
  end
  if self.count == 0 then return nil end
  return self.is_replaying and RETRY_MS or math.max(SOON_MS, self.next_ms - now_ms)
end

--- The next call is made as soon as it is tended: the breaker has moved.
function Queue:hurry()
  self.next_ms, self.failures = 0, 0
end

--- Other bounds, from now on.
---@param stage neap.Stage
function Queue:limits(stage)
  self.max_entries, self.max_bytes = stage.max_entries, stage.max_bytes
  self.max_age_ms, self.limit = stage.max_age_ms, stage.attempts
end

---@class (exact) neap.queue.Options
---@field path string without .queue
---@field host neap.Host its sync, if it has one
---@field warn fun(text: string)
---@field replay fun(entry: neap.Queued, done: fun(verdict: neap.replay.Verdict, reason: string|nil,
---  wait_ms: integer|nil, now_ms: integer)) makes a call again, now or later
---@field on_due fun() something may be due by now

---@param stage neap.Stage
---@param options neap.queue.Options
---@param now_ms integer
---@return neap.Queue
function queue.open(stage, options, now_ms)
  local self = setmetatable({
    name = stage.queue, path = options.path, host = options.host, warn = options.warn,
    replay = options.replay, on_due = options.on_due, seed = core.seed(),
    count = 0, bytes = 0, next_ms = now_ms, failures = 0, waiting = {}, done_seq = 0,
    over = {}, unsaid = {}, syncers = {}, is_syncing = false, is_replaying = false,
    counts = { done = 0, dead = 0, replayed = 0 },
  }, Queue)
  self:limits(stage)
  try_open(self, now_ms)
  return self
end

return queue
