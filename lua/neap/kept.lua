--- Last good answers in a file, so that a program started anew in the middle of an outage has some.
--
--   answers change  --  some seconds later -->  NAME.kept.new, in slices  -->  synced
--                                                                       --> renamed NAME.kept
--   start           <--  NAME.kept, whole or not at all
--
-- The file is never half written: who finds it finds all the answers of one moment, or what came in
-- the place of one while they were written.  One that is damaged is worth a warning and no more.
-- Ages are true across a restart as far as the system's clock is: an answer that seems to come from
-- the future is not used.

local core = require "neap.core"
local data = require "neap.data"
local records = require "neap.records"
local store = require "neap.store"

local kept = {}

local HEADER = "neap kept 1\n"
local SLICE_BYTES = 64 * 1024
local LEAST_MS = 10000 -- between two times of writing,
local BYTES_PER_MS = 100 -- or so long that no more is written
local SLICE_MS, RETRY_MS = 5, 10000
local SKEW_MS = 60000 -- that clocks of one machine may differ by
local MOST_BYTES = 48 * 1024 * 1024 -- of a file; the answers used last are in it
local MOST_READ = 64 * 1024 * 1024

---@class neap.Kept
---@field private store neap.Store
---@field private path string
---@field private warn fun(text: string)
---@field private host neap.Host
---@field private is_changed boolean
local Kept = {}
Kept.__index = Kept

-- ---- Reading ----------------------------------------------------------------------------------

--- One answer, if it is not from the future.
local function take(self, content, now_ms, wall_ms)
  local given, message = data.value(content, self.unpack)
  if type(given) ~= "table" or type(given.at) ~= "number" then return message or "no answer" end
  local age_ms = wall_ms - given.at
  if age_ms < -SKEW_MS or given.key == nil then return nil end
  given.at_ms = now_ms - math.max(0, age_ms)
  return nil, given
end

--- All answers of a file's text; or nil and what is wrong with it.
local function parse(self, text, now_ms, wall_ms)
  if text:sub(1, #HEADER) ~= HEADER then return nil, "is no file of kept answers" end
  local found, at = {}, #HEADER + 1
  while at <= #text do
    local mark, content, after = records.at(text, at)
    if mark ~= "K" then return nil, ("is damaged at byte %d"):format(at) end
    local fault, given = take(self, content, now_ms, wall_ms)
    if fault then return nil, ("has %s at byte %d"):format(fault, at) end
    if given then found[#found + 1] = given end
    at = after
  end
  return found
end

local function read(path)
  local file, message = core.open_file(path)
  if not file then return nil, message end
  local size = file:size()
  if size > MOST_READ then
    file:close()
    return nil, ("%s: has %d bytes, which is too large"):format(path, size)
  end
  local text
  text, message = file:read(0, size)
  file:close()
  return text, message and path .. ": " .. message
end

--- Fills the store with what the file has, beside what is there already.
local function load(self, now_ms)
  local text, message = read(self.path)
  if not text then return self.warn(message .. ": no answers from before the start") end
  if text == "" then return end
  local found
  found, message = parse(self, text, now_ms, core.wall_ms())
  if not found then
    return self.warn(("%s: %s: no answers from before the start"):format(self.path, message))
  end
  for _, one in ipairs(found) do
    if not self.store:has(one.key) then
      self.store:put(one.key, one.value, one.at_ms, one.bytes)
    end
  end
end

-- ---- Writing ----------------------------------------------------------------------------------

--- The answers used last, as many as a file takes.
local function chosen(self)
  local all = self.store:list()
  local first, bytes = #all + 1, 0
  while first > 1 and bytes + all[first - 1].bytes <= MOST_BYTES do
    first = first - 1
    bytes = bytes + all[first].bytes
  end
  return all, first
end

--- As assert, without the line: the message is for operators.
local function must(value, message)
  if not value then error(message, 0) end
  return value
end

--- Writes what the store has now: to be resumed until it is dead.  It yields after each slice, and
--- while the host syncs.  Raises what is wrong.
local function write(self, now_ms)
  local path = self.path .. ".new"
  local file = must(core.open_file(path, true))
  self.writing = file
  local entries, first = chosen(self)
  local slice, bytes, wall_ms = { HEADER }, #HEADER, core.wall_ms()
  for i = first, #entries do
    local one = entries[i]
    local text = data.text({
      key = one.key, value = one.value, at = wall_ms - (now_ms - one.at_ms),
      bytes = one.bytes - store.size(one.key),
    }, self.pack)
    if text then -- else it is no data
      slice[#slice + 1] = records.text("K", text)
      bytes = bytes + #slice[#slice]
    end
    if bytes >= SLICE_BYTES then
      must(file:append(table.concat(slice)))
      slice, bytes = {}, 0
      coroutine.yield(SLICE_MS)
    end
  end
  must(file:append(table.concat(slice)))
  if self.host.sync then
    local has_ended, ok, message
    self.host.sync(file:descriptor(), function(...)
      has_ended, ok, message = true, ...
    end)
    while not has_ended do coroutine.yield(SLICE_MS) end
    must(ok, message)
  else
    must(file:sync())
  end
  file:close()
  must(core.replace_file(path, self.path))
end

local function begin(self, now_ms)
  self.is_changed = false
  self.writer = coroutine.create(write)
  self.began_ms = now_ms
end

local function go_on(self, now_ms)
  local ok, wait_ms = coroutine.resume(self.writer, self, now_ms)
  if coroutine.status(self.writer) ~= "dead" then return wait_ms end
  self.writer = nil
  if self.writing and not ok then self.writing:truncate(0) end -- a full disk: others need the room
  if self.writing then self.writing:close() end
  self.writing = nil
  if not ok then
    self.is_changed = true
    self.warn(("%s: cannot be written: %s"):format(self.path, tostring(wait_ms)))
  end
  local pause_ms = math.max(LEAST_MS, math.floor(self.store.bytes / BYTES_PER_MS))
  self.next_ms = now_ms + pause_ms
  return self.is_changed and pause_ms or nil
end

local function open(self, now_ms)
  self.lock = core.open_file(self.path .. ".lock") or nil
  if self.lock and not self.lock:lock() then
    self.lock:close()
    self.lock = nil
  end
  if not self.lock then
    self.warn(("%s: another process has it, or it cannot be opened: answers are kept in memory "
      .. "only"):format(self.path))
    self.next_ms = now_ms + RETRY_MS
    return
  end
  local ok, err = pcall(load, self, now_ms)
  if not ok then self.warn(("%s: cannot be read: %s"):format(self.path, tostring(err))) end
  self.next_ms = now_ms + LEAST_MS
end

--- Does what is due; answers when to ask again, nil: not before something has changed.
---@param now_ms integer
---@return integer|nil
function Kept:tend(now_ms)
  if self.writer then return go_on(self, now_ms) end
  if not self.lock then
    if now_ms < self.next_ms then return self.next_ms - now_ms end
    open(self, now_ms)
    return self.lock and LEAST_MS or RETRY_MS
  end
  if not self.is_changed then return nil end
  if now_ms < self.next_ms then return self.next_ms - now_ms end
  begin(self, now_ms)
  return go_on(self, now_ms)
end

--- Writes what has changed, now, and waits for the disk: before the program ends.
---@param now_ms integer
function Kept:flush(now_ms)
  if not self.lock or not (self.is_changed or self.writer) then return end
  local sync = self.host.sync
  self.host = {}
  self.writer = nil
  begin(self, now_ms)
  while self.writer do go_on(self, now_ms) end
  self.host = { sync = sync }
end

--- From now on it is that store's file, and no other is.
---@param of_store neap.Store
function Kept:attach(of_store)
  if self.store == of_store and of_store.told == self.told then return end
  self.store, self.is_changed = of_store, true
  self.told = function() self.is_changed = self.is_changed or self.store == of_store end
  of_store:on_put(self.told)
end

--- Another process may have the file after this.
function Kept:close()
  if self.lock then self.lock:close() end
  self.lock = nil
end

---@class (exact) neap.kept.Options
---@field store neap.Store
---@field path string without .kept
---@field host neap.Host its sync, if it has one
---@field warn fun(text: string)
---@field pack? fun(value: userdata): string|nil
---@field unpack? fun(bytes: string): userdata|nil

--- Gives a store a file, and fills it with what that has.
---@param options neap.kept.Options
---@param now_ms integer
---@return neap.Kept
function kept.open(options, now_ms)
  local self = setmetatable({
    path = options.path .. ".kept", host = options.host, warn = options.warn,
    pack = options.pack, unpack = options.unpack, next_ms = now_ms,
  }, Kept)
  self:attach(options.store)
  open(self, now_ms)
  self.is_changed = false
  return self
end

return kept
