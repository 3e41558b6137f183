--- The breakers of a guard's keys, of which idle ones make room for new keys.
--
--   ring   the lines that there are, in no order; a hand goes round and looks at a few of them each
--          time that a key is new
--   look   has the line been used since it was looked at last?  Then it is as if used now
--   evict  not used for longer than its window and its longest cooldown, closed, nobody's mode, no
--          call under way: its row is the next key's
--
-- So nothing is written down when a line is used, and none goes too early: each permit of such a
-- line is known until it is reported, closed or collected.  What a line has counted goes with it.
--
-- Only of a panel that nobody else has.

local rows = {}

local LOOKS = 8 -- at one time
local PAUSE_MS = 1000 -- after a round that has found none

---@class neap.Rows
---@field evicted integer
---@field forget fun(key: string)|nil is told that a key has gone
---@field is_still boolean|nil for now nobody goes
local Rows = {}
Rows.__index = Rows

---@param guard table
---@return neap.Rows
function rows.new(guard)
  return setmetatable({
    guard = guard, ring = {}, hand = 0, evicted = 0, idle_ms = 0,
    round = 0, oldest_ms = math.huge, wait_until_ms = nil,
  }, Rows)
end

--- How long a line has to be idle, by the rules in force.
function Rows:adopt(rules)
  local numbers = rules:numbers()
  local length_ms = numbers.window == "time" and numbers.length_ms or 0
  self.idle_ms = length_ms + math.max(numbers.max_cooldown_ms, numbers.ramp_ms or 0)
  self.wait_until_ms = nil
end

local function is_awaited(of_key)
  local queue = of_key.queue
  return queue ~= nil and queue.first <= queue.last
end

--- Looks at one.  True: it is closed and idle, and its row is free now, if `may_go`.
local function look(of_key, now_ms, may_go)
  may_go = may_go and not of_key.is_pinned and not is_awaited(of_key)
  local breaker, activity, used_ms =
    of_key.panel:look(of_key.native, of_key.activity, of_key.used_ms, may_go)
  of_key.activity, of_key.used_ms = activity, used_ms
  if used_ms > now_ms then of_key.used_ms = now_ms end
  if not breaker then return false end
  of_key.breaker = breaker
  return true
end

local function step(self)
  self.hand = self.hand % #self.ring + 1
  return self.ring[self.hand]
end

local function evict(self, of_key)
  local ring, guard = self.ring, self.guard
  ring[self.hand] = ring[#ring]
  ring[#ring] = nil
  guard.lines[of_key.key] = nil
  guard.count = guard.count - 1
  self.evicted = self.evicted + 1
  if guard.last_line == of_key then guard.last_line = nil end
  if self.forget then self.forget(of_key.key) end
end

--- A new line.
function Rows:add(of_key)
  local now_ms = of_key.native:now()
  of_key.used_ms, of_key.activity = now_ms, 0
  of_key.native:count(true)
  for _ = 1, math.min(2, #self.ring) do look(step(self), now_ms, false) end
  self.ring[#self.ring + 1] = of_key
end

--- After a whole round without one that may go: none may, for a while.
local function rest(self, now_ms, used_ms)
  self.round, self.oldest_ms = self.round + 1, math.min(self.oldest_ms, used_ms)
  if self.round < #self.ring then return false end
  self.wait_until_ms = math.max(now_ms + PAUSE_MS, self.oldest_ms + self.idle_ms)
  self.round, self.oldest_ms = 0, math.huge
  return true
end

local function waits(self, now_ms)
  local left_ms = self.wait_until_ms and self.wait_until_ms - now_ms or 0
  return left_ms > 0 and left_ms <= self.idle_ms + PAUSE_MS -- or the clock has gone back
end

--- Gives the row of one line back.  Bounded: it may find none though there is one.
---@return boolean
function Rows:make_room()
  local guard = self.guard
  local now_ms = guard.line.native:now()
  if self.is_still or waits(self, now_ms) then return false end
  for _ = 1, math.min(LOOKS, #self.ring) do
    local of_key = step(self)
    if look(of_key, now_ms, true) then
      evict(self, of_key)
      self.round, self.oldest_ms, self.wait_until_ms = 0, math.huge, nil
      return true
    end
    if rest(self, now_ms, of_key.used_ms) then break end
  end
  return false
end

return rows
