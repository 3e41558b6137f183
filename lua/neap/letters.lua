--- What is in a queue's files, for an operator: what waits, and the dead letters.
--
--   read      of a queue that anybody may have: nothing is written, and what a running neap is
--             writing just now is left out
--   change    of one that nobody has: whoever has it holds NAME.lock
--
--   requeue   a dead letter  ->  the end of the queue, with its id, as if it came now; then it is
--             taken out of the dead letters.  Killed in between it is in both: made twice by one id
--   drop      a dead letter  ->  gone;  a call that waits  ->  taken back, as C in NAME.queue

local core = require "neap.core"
local data = require "neap.data"
local queue = require "neap.queue"
local queue_file = require "neap.queue_file"
local records = require "neap.records"

local letters = {}

local MOST = 1024 * 1024 * 1024 -- bytes of a file that is looked at
local FIELDS = { "id", "at", "key", "args", "request" }

---@class (exact) neap.Letters
---@field waiting neap.Queued[] the oldest first, each with attempts: how often it was its own fault
---@field dead neap.Queued[] likewise, each with its reason

--- Calls f(mark, text, from, to) for each good record.
local function each_record(text, f)
  local at = text:sub(1, #queue_file.HEADER) == queue_file.HEADER and #queue_file.HEADER + 1 or 1
  while at <= #text do
    local mark, content, after = records.at(text, at)
    if mark then f(mark, content, at, after - 1) end
    after = after or records.skip(text, at) or (text:find("\n", at, true) or #text) + 1
    at = after
  end
end

local function text_of(path)
  local file = io.open(path, "rb")
  if not file then return "" end
  local text = file:read(MOST) or ""
  file:close()
  return text
end

local function read_waiting(path)
  local all, attempts, gone, done = {}, {}, {}, 0
  each_record(text_of(path .. ".queue"), function(mark, content)
    local seq = tonumber(content)
    if mark == "E" then
      all[#all + 1] = queue_file.entry(content)
    elseif mark == "A" and seq then
      attempts[seq] = (attempts[seq] or 0) + 1
    elseif mark == "C" and seq then
      gone[seq] = true
    elseif mark == "D" and seq then
      done = math.max(done, seq)
    end
  end)
  local waiting = {}
  for _, entry in ipairs(all) do
    if entry.seq > done and not gone[entry.seq] then
      entry.attempts = attempts[entry.seq] or 0
      waiting[#waiting + 1] = entry
    end
  end
  return waiting
end

--- The dead letters of a text, each with where it is.
local function read_dead(text)
  local dead = {}
  each_record(text, function(mark, content, from, to)
    local letter = mark == "X" and queue_file.entry(content)
    if not letter then return end
    letter.from, letter.to = from, to
    dead[#dead + 1] = letter
  end)
  return dead
end

--- The queues that have files in a directory, by name.
---@param directory string
---@return string[]|nil, string|nil message
function letters.names(directory)
  local files, message = core.list(directory)
  if not files then return nil, message end
  local names, seen = {}, {}
  for _, file in ipairs(files) do
    local name = file:match("^(.+)%.queue$") or file:match("^(.+)%.dead$")
    if name and not seen[name] then
      seen[name], names[#names + 1] = true, name
    end
  end
  table.sort(names)
  return names
end

---@param path string without .queue
---@return neap.Letters
function letters.read(path)
  return { waiting = read_waiting(path), dead = read_dead(text_of(path .. ".dead")) }
end

-- ---- Changing ---------------------------------------------------------------------------------

--- Opens it as a neap would, which puts right what a killed one left, and warns of it: nil and why
--- it can't be.
local function open(path, warn)
  local said = {}
  local opened = queue.open({
    queue = path, max_entries = math.huge, max_bytes = MOST, max_age_ms = math.huge,
  }, { path = path, host = {}, warn = function(text) said[#said + 1] = text end }, 0)
  local why = not opened.file and table.remove(said):gsub(": nothing can be queued$", "")
  for _, text in ipairs(said) do warn(text) end
  if not why then return opened end
  return nil, (why:gsub("another process has this queue$", "%0: stop that neap first"))
end

--- Takes letters out of the dead ones.
local function bury_without(path, text, gone)
  local kept, at = {}, 1
  for _, letter in ipairs(gone) do
    kept[#kept + 1] = text:sub(at, letter.from - 1)
    at = letter.to + 1
  end
  kept[#kept + 1] = text:sub(at)
  local file, message = core.open_file(path .. ".dead.new", true)
  if not file then return nil, message end
  local ok
  ok, message = file:append(table.concat(kept))
  if ok then ok, message = file:sync() end
  file:close()
  if not ok then return nil, message end
  return core.replace_file(path .. ".dead.new", path .. ".dead")
end

--- Puts a letter's call at the end of the queue.
local function put_back(opened, letter)
  local entry = { seq = opened.last_seq + 1 }
  for _, field in ipairs(FIELDS) do entry[field] = letter[field] end
  entry.at = core.wall_ms()
  local ok, message = opened.file:append(records.text("E", data.text(entry)))
  if ok then opened.last_seq = entry.seq end
  return ok, message
end

local function with_id(list, id)
  local found = {}
  for _, one in ipairs(list) do
    if id == "all" or one.id == id then found[#found + 1] = one end
  end
  return found
end

local NONE = "has no %s %s"

local function requeue(opened, path, id)
  local text = text_of(path .. ".dead")
  local found = with_id(read_dead(text), id)
  if not found[1] then return nil, NONE:format("dead letter", id) end
  for _, letter in ipairs(found) do
    local ok, message = put_back(opened, letter)
    if not ok then return nil, message end
  end
  local ok, message = opened.file:sync()
  if ok then ok, message = bury_without(path, text, found) end
  return ok and #found, message
end

local function drop(opened, path, id)
  local text = text_of(path .. ".dead")
  local found = with_id(read_dead(text), id)
  if found[1] then
    local ok, message = bury_without(path, text, found)
    return ok and #found, message
  end
  found = with_id(read_waiting(path), id)
  if not found[1] then return nil, NONE:format("call", id) end
  local ok, message
  for _, entry in ipairs(found) do
    ok, message = opened.file:append(records.text("C", ("%d"):format(entry.seq)))
    if not ok then return nil, message end
  end
  ok, message = opened.file:sync()
  return ok and #found, message
end

local function change(act, path, id, warn)
  local opened, message = open(path, warn)
  if not opened then return nil, message end
  local count
  count, message = act(opened, path, id)
  opened:close()
  return count, message
end

--- Puts a dead letter back into the queue; "all": each.
---@param path string without .queue
---@param id string
---@param warn fun(text: string) of what was damaged
---@return integer|nil count, string|nil message
function letters.requeue(path, id, warn) return change(requeue, path, id, warn) end

--- Forgets a dead letter, or a call that waits; "all": all dead letters, or if there are none all
--- that waits.
---@param path string
---@param id string
---@param warn fun(text: string)
---@return integer|nil count, string|nil message
function letters.drop(path, id, warn) return change(drop, path, id, warn) end

return letters
