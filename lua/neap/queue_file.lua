--- What is in the files of a queue, for neap/queue.lua:
--
--   NAME.queue     neap queue 1
--                  E  a call: id, seq, at, key, args or request
--                  A  a number: that call has been made, and it was its own fault
--                  C  a number: it was taken back
--                  D  a number: it has been seen to, and all before it
--   NAME.dead      X  a call that will not be made, and the reason
--   NAME.damaged   bytes that could not be read
--
-- A record that was not written to its end is the last one, and cut off.  One that is damaged, but
-- as long as it says, is left out: those behind it are good.  Where its length is damaged, nobody
-- knows where the next one begins, and a call's own text may look like one: all of the rest is cut
-- off.

local core = require "neap.core"
local data = require "neap.data"
local records = require "neap.records"

local queue_file = { HEADER = "neap queue 1\n" }

queue_file.MOST_ENTRY = 1024 * 1024 -- bytes of one call
local WINDOW = 2 * (queue_file.MOST_ENTRY + 1024)
local HEADER = queue_file.HEADER
local FIELDS = { "id", "seq", "at", "key", "args", "request" }
local TORN = "%s: the last record is not whole, or damaged: cut at byte %d of %d, the rest is in %s"
local DAMAGED = "%s: the record at byte %d is damaged: it is left out, and kept in %s"

-- ---- Reading ----------------------------------------------------------------------------------

--- A call, from its record's text; nil: it is none.
---@param text string
---@return neap.Queued|nil
function queue_file.entry(text)
  local entry = data.value(text)
  local is_call = type(entry) == "table" and type(entry.seq) == "number"
    and type(entry.id) == "string" and type(entry.at) == "number" and type(entry.key) == "string"
  return is_call and entry or nil
end

--- Remembers a record that was read.
local function note(found, mark, content, offset, size)
  if mark == "E" then
    local entry = queue_file.entry(content)
    if not entry then return false end
    found.waiting[#found.waiting + 1] = {
      seq = entry.seq, size = size, offset = offset, at = entry.at,
    }
    found.last_seq = math.max(found.last_seq, entry.seq)
    return true
  end
  local seq = tonumber(content)
  if not seq then return false end
  if mark == "D" then
    found.done_seq = math.max(found.done_seq, seq)
  elseif mark == "A" then
    found.attempts[seq] = (found.attempts[seq] or 0) + 1
  elseif mark == "C" then
    found.cancelled[seq] = true
  end
  return true
end

--- Keeps bytes that could not be read; not more of them than the queue itself may have.
local function set_aside(self, from, to)
  local file, message = core.open_file(self.path .. ".damaged")
  if not file then return nil, message end
  while from < to and file:size() < self.max_bytes do
    local part = self.file:read(from, math.min(to - from, WINDOW))
    if not part or part == "" then break end
    file:append(part)
    from = from + #part
  end
  file:sync()
  file:close()
  return true
end

--- What is behind the last good record is no record.
local function cut(self, offset, size)
  self.warn(TORN:format(self.path .. ".queue", offset, size, self.path .. ".damaged"))
  local ok, message = set_aside(self, offset, size)
  if not ok then return nil, message end
  return self.file:truncate(offset)
end

--- Where the record after a damaged one begins, if that is sure: a good one is there.
local function after_damaged(text)
  local next_at = records.skip(text, 1)
  return next_at and records.at(text, next_at) and next_at or nil
end

--- Reads on from an offset: where it got to; or nil, and what is wrong.
local function read_window(self, found, offset, size)
  local text, message = self.file:read(offset, math.min(size - offset, WINDOW))
  if not text then return nil, message end
  local at = 1
  while at <= #text do
    local mark, content, after = records.at(text, at)
    if not mark or not note(found, mark, content, offset + at - 1, after - at) then break end
    at = after
  end
  if at > 1 then return offset + at - 1 end
  local next_at = after_damaged(text)
  if not next_at then
    local ok
    ok, message = cut(self, offset, size)
    return ok and size, message
  end
  self.warn(DAMAGED:format(self.path .. ".queue", offset, self.path .. ".damaged"))
  local ok, fault = set_aside(self, offset, offset + next_at - 1)
  return ok and offset + next_at - 1, fault
end

local function read_all(self, found)
  local size = self.file:size()
  if size == 0 then return self.file:append(HEADER) end
  if self.file:read(0, #HEADER) ~= HEADER then
    if size >= #HEADER then return nil, "is no queue" end
    self.file:truncate(0) -- killed before its first line was whole
    return self.file:append(HEADER)
  end
  local offset = #HEADER
  while offset < size do
    local next_offset, message = read_window(self, found, offset, size)
    if not next_offset then return nil, message end
    offset = next_offset
  end
  return true
end

---@class (exact) neap.queue.Found what is in a queue's file
---@field waiting { seq: integer, size: integer, offset: integer, at: integer }[] in order
---@field attempts table<integer, integer>
---@field cancelled table<integer, boolean>
---@field done_seq integer
---@field last_seq integer

--- Reads a queue's file, and puts it right.
---@param self { file: table, path: string, max_bytes: integer, warn: fun(text: string) }
---@return neap.queue.Found|nil, string|nil message
function queue_file.read(self)
  local found = { waiting = {}, attempts = {}, cancelled = {}, done_seq = 0, last_seq = 0 }
  local ok, message = read_all(self, found)
  if ok then ok, message = self.file:sync() end
  if not ok then return nil, message end
  local all = found.waiting
  found.waiting = {}
  for _, one in ipairs(all) do
    if one.seq > found.done_seq then
      found.waiting[#found.waiting + 1] = one
    else
      found.attempts[one.seq], found.cancelled[one.seq] = nil, nil
    end
  end
  found.last_seq = math.max(found.last_seq, found.done_seq)
  return found
end

-- ---- Dead letters -----------------------------------------------------------------------------

local function dead_file(self)
  local path = self.path .. ".dead"
  local file, message = core.open_file(path)
  if not file or file:size() < self.max_bytes then return file, message end
  file:close()
  self.warn(("%s: is full: it is %s.1 now"):format(path, path))
  core.replace_file(path, path .. ".1")
  return core.open_file(path)
end

--- What is behind half a letter, of a process that was killed, begins on a line of its own.
local function letter_text(file, letter)
  local size = file:size()
  local is_torn = size > 0 and file:read(size - 1, 1) ~= "\n"
  return (is_torn and "\n" or "") .. records.text("X", data.text(letter))
end

--- Writes a call down that will not be made.
---@param self { path: string, max_bytes: integer, warn: fun(text: string) }
---@param entry neap.Queued
---@param reason string|nil
---@return boolean|nil ok, string|nil message
function queue_file.bury(self, entry, reason)
  local file, message = dead_file(self)
  if not file then return nil, message end
  local letter = { reason = reason }
  for _, field in ipairs(FIELDS) do letter[field] = entry[field] end
  local ok
  ok, message = file:append(letter_text(file, letter))
  if ok then ok, message = file:sync() end
  file:close()
  return ok, message
end

return queue_file
