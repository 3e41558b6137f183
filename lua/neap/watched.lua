--- A watched file: what it, and everything that was read with it, holds now, and whether that has
-- come to rest.  Identity is content: no time stamp, size or inode is looked at.

local watched = {}

watched.SETTLE_MS = 100 -- a file is attempted once it has been unchanged for this long,
watched.PATIENCE_MS = 1000 -- or this long after its first change
watched.MAX_BYTES = 1024 * 1024 -- of one file

---@class neap.watched
---@field path string
---@field attempted? table<string, string|false|table> what the last attempt read, by path
---@field candidate? table<string, string|false|table> what the last look saw, if that differs

--- What a file holds now: its text, false if there is none, or what keeps it from being read,
--- which no text can be mistaken for.
---@return string|false|string[]
local function content(files, path)
  local text, message, is_gone = files.read(path, watched.MAX_BYTES)
  if text then return text end
  return not is_gone and { message } or false
end

local function is_same_content(a, b)
  if type(a) == "table" and type(b) == "table" then return a[1] == b[1] end
  return a == b
end

local function is_same(a, b)
  for path, text in pairs(a) do
    if not is_same_content(text, b[path]) then return false end
  end
  for path in pairs(b) do
    if a[path] == nil then return false end
  end
  return true
end

--- What all files that the last attempt read hold now.
---@param item neap.watched
---@return table<string, string|false|string[]>
function watched.contents(files, item)
  local texts = { [item.path] = content(files, item.path) }
  for path in pairs(item.attempted or {}) do
    if texts[path] == nil then texts[path] = content(files, path) end
  end
  return texts
end

--- A text as a reader gives it: text | nil, message.
---@param text string|false|string[]
function watched.text(text, path)
  if type(text) == "string" then return text end
  return nil, text and text[1] or path .. ": No such file or directory"
end

--- A reader that notes what it gives.  What has just been seen is not read again: one attempt, one
--- content.
---@return table noted, fun(path: string): string|nil, string|nil read
function watched.reader(files, texts)
  local noted = {}
  return noted, function(path)
    local text = texts[path]
    if text == nil then text = content(files, path) end
    noted[path] = text
    return watched.text(text, path)
  end
end

--- When `texts` may be attempted; nil if they have been.
---@param item neap.watched
---@return integer|nil at_ms
function watched.due_ms(item, texts, now_ms)
  if item.attempted and is_same(texts, item.attempted) then
    item.candidate = nil
    return nil
  end
  if not item.candidate then item.first_ms = now_ms end
  if not item.candidate or not is_same(texts, item.candidate) then
    item.candidate, item.since_ms = texts, now_ms
  end
  local patience_ms = item.first_ms + watched.PATIENCE_MS
  -- A file is empty between truncation and writing: that is no reason to complain at once.
  local text = texts[item.path]
  if type(text) == "string" and not text:find("%S") then return patience_ms end
  return math.min(item.since_ms + watched.SETTLE_MS, patience_ms)
end

return watched
