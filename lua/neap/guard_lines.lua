--- The lines of a guard: a breaker per key, made by its first call, and one that is shared by those
--- that find no room.

local core = require "neap.core"
local guard_log = require "neap.guard_log"
local line = require "neap.line"

local DEFAULT, OVERFLOW = "default", "*"
local NO_ROOM = "%s: no room for another key, among others for %q: such share the breaker * "
  .. "(max_keys = %d)"

---@class neap.Guard
local Guard = {}

local guard_lines = { methods = Guard, DEFAULT = DEFAULT }

--- A table's fields, in one of our own.
local function copied(fields)
  local copy = {}
  for field, value in next, fields do copy[field] = value end
  return copy
end
guard_lines.copied = copied

local function claim(self, key)
  if not self.panel then self.panel = core.panel(self.max_keys + 1) end
  local breaker = self.panel:claim(self.name .. "/" .. key)
  if not breaker then return nil end
  local made = line.new(self, key, breaker)
  made.panel = self.panel
  return made
end

--- Of a shared panel: whether another process has made that key's breaker, so it costs no room.
local function has_row(self, key)
  return self.panel ~= nil and self.panel:find(self.name .. "/" .. key) ~= nil
end

local function shared_line(self)
  local shared = self.lines[OVERFLOW]
  if not shared then
    shared = claim(self, OVERFLOW) or line.new(self, OVERFLOW, core.breaker())
    self.lines[OVERFLOW] = shared
  end
  return shared
end

--- A line for a key that has none, if there is room, or some can be made.
local function new_line(self, key)
  local made = (self.count < self.max_keys or has_row(self, key)) and claim(self, key)
  if made or not self.rows or not line.is_key(self.name, key) then return made end
  return self.rows:make_room() and self.count < self.max_keys and claim(self, key)
end

--- The line of that key, made if there is room, else the one that all such keys share.
---@param key string
---@return table
function Guard:line_of(key)
  local found = self.lines[key]
  if found then return found end
  if type(key) ~= "string" then error(("key must be a string, got %s"):format(type(key)), 3) end
  local shared = shared_line(self)
  if key == OVERFLOW then return shared end
  local made = new_line(self, key)
  if made then
    self.lines[key] = made
    self.count = self.count + 1
    if self.rows then self.rows:add(made) end
    return made
  end
  self.overflow = self.overflow + 1
  guard_log.seldom(self, "overflow", "warning",
    NO_ROOM:format(self.name, key:sub(1, 100), self.max_keys))
  return shared
end

--- The line of a call, by the policy's key function; without an answer the default one.
---@param policy neap.Policy the generation, which has one
---@param call table as far as it is known before it
---@return table
function Guard:line_for(policy, call)
  local key, fault = policy.key(call)
  if fault then self:fault("key", fault) end
  if policy.warned[1] then self:warned(policy) end
  return key and self:line_of(key) or self.line
end

--- Whose breaker is a call's, by the policy's key function: "default" if it has none, or has
--- nothing to say.
---@param call table what is known before it: args, request
---@return string
function Guard:key(call)
  if type(call) ~= "table" then error("what is known of the call must be a table, got "
    .. type(call), 2) end
  local policy = self.policy
  return policy.key and self:line_for(policy, line.sealed(copied(call))).key or DEFAULT
end

--- The guard's one key: an object with call, acquire, report and deadline of its own, for those who
--- know the key beforehand.  Its breaker stays.
---@param key string
---@return neap.Line
function Guard:at(key)
  local of_key = self:line_of(key)
  of_key.is_pinned = true
  of_key.native:count(false) -- it stays, whatever is under way
  return of_key
end

--- The line of that key, if there is one; of nil the default one.
local function existing(self, key)
  return self.lines[key == nil and DEFAULT or key]
end
guard_lines.existing = existing

--- The line of a call in steps: by its key, or as the policy's key function has it.
function guard_lines.of_call(self, call)
  local policy = self.policy
  if call.key == nil and policy.key then return self:line_for(policy, line.sealed(copied(call))) end
  return existing(self, call.key) or self.lines[OVERFLOW] or self.line
end

--- What is answered where there is none.
function guard_lines.none(self, key)
  return nil, ("%s has no key %s yet"):format(self.name, tostring(key))
end

--- The breakers there are, those with no traffic too.
---@return { key: string, breaker: neap.core.Breaker }[]
function Guard:breakers()
  local list = {}
  for key, of_key in pairs(self.lines) do
    list[#list + 1] = { key = key, breaker = of_key.breaker }
  end
  table.sort(list, function(a, b) return a.key < b.key end)
  return list
end

return guard_lines
