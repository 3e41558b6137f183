--- Good answers of the past, by key: bounded in entries and bytes, least recently used out.
--
--        head <-> newest <-> ... <-> oldest <-> head        each entry: key, value, bytes, at_ms
--
-- Values are kept as they are, not copied: an answer is to be read, not changed.

local store = {}

---@class neap.Store
---@field private head table
---@field private entries table<any, table>
---@field count integer
---@field bytes integer about what the values take
---@field evicted integer that have made room for others
---@field told? fun() as of on_put
local Store = {}
Store.__index = Store

local SCALAR_BYTES, STRING_BYTES, TABLE_BYTES, PAIR_BYTES = 16, 40, 56, 32

--- About what a value takes in memory.  Asks no metamethod anything.
---@param value any
---@return integer
function store.size(value)
  local kind = type(value)
  if kind == "string" then return STRING_BYTES + #value end
  if kind ~= "table" then return SCALAR_BYTES end
  local seen, waiting, bytes = { [value] = true }, { value }, 0
  local function add(part)
    if type(part) == "string" then
      bytes = bytes + STRING_BYTES + #part
    elseif type(part) == "table" and not seen[part] then
      seen[part] = true
      waiting[#waiting + 1] = part
    end
  end
  while #waiting > 0 do
    local one = table.remove(waiting)
    bytes = bytes + TABLE_BYTES
    for k, v in next, one do
      bytes = bytes + PAIR_BYTES
      add(k)
      add(v)
    end
  end
  return bytes
end

local function unlink(entry)
  entry.newer.older, entry.older.newer = entry.older, entry.newer
end

local function link_newest(self, entry)
  local head = self.head
  local newest = head.older
  entry.newer, entry.older = head, newest
  newest.newer, head.older = entry, entry
end

local function drop(self, entry)
  unlink(entry)
  self.entries[entry.key] = nil
  self.count, self.bytes = self.count - 1, self.bytes - entry.bytes
end

local function shrink(self)
  local head = self.head
  while self.count > self.max_entries or self.bytes > self.max_bytes do
    drop(self, head.newer)
    self.evicted = self.evicted + 1
  end
end

--- Keeps a value, in the place of an older one of its key.
---@param value_bytes integer|nil what the value takes; nil: as store.size says
---@return boolean kept false if it is too large
function Store:put(key, value, now_ms, value_bytes)
  local entry = self.entries[key]
  local bytes
  if entry and rawequal(entry.value, value) then
    bytes = entry.bytes
  else
    bytes = store.size(key) + (value_bytes or store.size(value))
  end
  if bytes > self.max_entry_bytes or bytes > self.max_bytes then return false end
  if entry then
    unlink(entry)
    self.bytes = self.bytes - entry.bytes
  else
    -- All memory is asked for before anything changes.
    entry = { key = key, value = false, bytes = 0, at_ms = 0, newer = false, older = false }
    self.entries[key] = entry
    self.count = self.count + 1
  end
  entry.value, entry.bytes, entry.at_ms = value, bytes, now_ms
  self.bytes = self.bytes + bytes
  link_newest(self, entry)
  shrink(self)
  return true
end

--- The value of that key, if it is not older than max_age_ms.
---@return any value, integer|nil age_ms nil: there is none
function Store:get(key, now_ms, max_age_ms)
  local entry = self.entries[key]
  if not entry then return nil, nil end
  local age_ms = now_ms - entry.at_ms
  if age_ms < 0 then age_ms = 0 end
  if age_ms > max_age_ms then
    drop(self, entry)
    return nil, nil
  end
  if self.head.older ~= entry then -- or it is the newest already
    unlink(entry)
    link_newest(self, entry)
  end
  return entry.value, age_ms
end

--- Makes the value of that key as fresh as one that has just been put, if it fits.
---@param fits fun(value: any): boolean
---@return boolean renewed
function Store:renew(key, now_ms, fits)
  local entry = self.entries[key]
  if not entry or not fits(entry.value) then return false end
  entry.at_ms = now_ms
  unlink(entry)
  link_newest(self, entry)
  return true
end

---@return boolean
function Store:has(key)
  return self.entries[key] ~= nil
end

--- All there is, the one unused for longest first.  Only which there are is so for good: what is
--- put later in the place of one shows in it.  A copy of many would make everybody wait.
---@return { key: any, value: any, at_ms: integer, bytes: integer }[]
function Store:list()
  local list, n, head = {}, 0, self.head
  local entry = head.newer
  while entry ~= head do
    n = n + 1
    list[n] = entry
    entry = entry.newer
  end
  return list
end

--- Calls `told`, and nobody else any more, whenever something has been kept or renewed.  Stores
--- nobody asks this of pay nothing for it.
---@param told fun()
function Store:on_put(told)
  local function telling(method)
    return function(...)
      local has_changed = method(...)
      if has_changed then told() end
      return has_changed
    end
  end
  self.told, self.put, self.renew = told, telling(Store.put), telling(Store.renew)
end

--- Other bounds, from now on.
---@param max_entries integer
---@param max_bytes integer
---@param max_entry_bytes? integer without: max_bytes
function Store:limit(max_entries, max_bytes, max_entry_bytes)
  self.max_entries, self.max_bytes = max_entries, max_bytes
  self.max_entry_bytes = max_entry_bytes or max_bytes
  shrink(self)
end

---@param max_entries integer
---@param max_bytes integer
---@param max_entry_bytes? integer
---@return neap.Store
function store.new(max_entries, max_bytes, max_entry_bytes)
  local head = {}
  head.newer, head.older = head, head
  local self = setmetatable({ head = head, entries = {}, count = 0, bytes = 0, evicted = 0 },
    Store)
  self:limit(max_entries, max_bytes, max_entry_bytes)
  return self
end

return store
