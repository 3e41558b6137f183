--- What the breakers did in the last minutes, kept so that the page shows it to who opens it in the
--- midst of an outage.
---
---   each step, 4 s     what became of the calls since the last one: so many steps, a ring
---   each minute        durations, and what fallbacks answered, as they were by then
---   as it happens      transitions, the last few
---
--- Memory is bounded: of a breaker with calls in the last four minutes 5 KB, of another 1 KB, and
--- 0.3 KB for each of its kept transitions.  Of a key that is gone nothing is kept.

local recent = {}

recent.STEP_MS = 4000
recent.POINTS = 64 -- with 4 series 256 numbers: Lua's arrays grow by doubling

local STEP_MS, POINTS = recent.STEP_MS, recent.POINTS
local SERIES = 4            -- ok, slow, failed, refused
local STEPS_PER_MINUTE = 15
local MOST_MOVES = 20

---@class neap.page.Move a transition, as it is shown
---@field at integer milliseconds since 1970
---@field from neap.State
---@field to neap.State
---@field text string with the rule, what it measured and the limit
---@field by? string
---@field shadow? string of a shadow policy, which moved nothing

---@class neap.page.Record of one breaker
---@field moves neap.page.Move[] the last is the newest
---@field points? integer[] the ring; nil: no call in all of it
---@field seen integer the last step that found the breaker
---@field newer? integer[] durations at the last whole minute
---@field older? integer[] and at the one before

---@class neap.page.Recent
---@field step integer the last whole one
---@field of table<string, { asked: integer, keys: table<string, neap.page.Record> }> by policy
local Recent = {}
Recent.__index = Recent

-- ---- Records ----------------------------------------------------------------------------------

local function ended(told)
  local text = tostring(told)
  local name = told.policy .. "/" .. told.key .. ": "
  return text:sub(1, #name) == name and text:sub(#name + 1) or text
end

--- The oldest goes, unless it is how the breaker left closed for the last time: in a long outage
--- its probes alone are more than the rest.
local function make_room(moves)
  local opening
  for i, move in ipairs(moves) do
    if move.from == "closed" and not move.shadow then opening = i end
  end
  table.remove(moves, opening == 1 and 2 or 1)
end

function Recent:note(told)
  local moves = self:record(told.policy, told.key).moves
  if #moves == MOST_MOVES then make_room(moves) end
  moves[#moves + 1] = {
    at = self.wall_ms(told.at_ms), from = told.from, to = told.to, by = told.by,
    shadow = told.shadow, text = ended(told),
  }
end

--- Of a policy; from the first time on its guard tells of transitions.
function Recent:policy(name, guard)
  local of_policy = self.of[name]
  if not of_policy then
    of_policy = { asked = 0, keys = {} }
    self.of[name] = of_policy
  end
  if guard and of_policy.guard ~= guard then
    of_policy.guard = guard
    guard.events:on(function(told) self:note(told) end)
  end
  local shadows = guard and guard.shadows -- from when on there is a candidate
  if shadows and of_policy.shadows ~= shadows then
    of_policy.shadows = shadows
    shadows:on(function(told) self:note(told) end)
  end
  return of_policy
end

---@return neap.page.Record
function Recent:record(policy, key)
  local keys = self:policy(policy).keys
  if not keys[key] then keys[key] = { moves = {}, seen = self.step + 1 } end
  return keys[key]
end

-- ---- A step -----------------------------------------------------------------------------------

--- What became of the calls since the last step; the ring is there only when there is something in
--- it.
---@return integer how many calls
local function put_points(record, step, ok, slow, failed, refused)
  local last, all = record.counts, ok + slow + failed + refused
  local more = all - (last and last[SERIES + 1] or 0)
  if more == 0 and not record.points then return 0 end
  local now = { ok, slow, failed, refused, all }
  record.counts = now
  local any = more > 0
  if any then record.busy = step end
  if not record.points and any then
    record.points = {}
    for i = 1, POINTS * SERIES do record.points[i] = 0 end
  elseif record.points and step - record.busy >= POINTS then
    record.points = nil
  end
  local at = step % POINTS * SERIES
  for i = 1, record.points and SERIES or 0 do
    record.points[at + i] = math.max(0, now[i] - (last and last[i] or 0))
  end
  return math.max(0, more)
end

local function look(self, guard, key)
  local of_key = guard.lines[key]
  if not of_key then return end
  local step, rules, now_ms = self.step + 1, guard.policy.rules, of_key.native:now()
  local record, of_policy = self:record(guard.name, key), self:policy(guard.name)
  record.seen = step
  of_policy.asked = of_policy.asked
    + put_points(record, step, of_key.breaker:counts(rules, now_ms))
  if step % STEPS_PER_MINUTE ~= 0 then return end
  local is_quiet = record.newer and step - (record.busy or 0) > STEPS_PER_MINUTE
  record.older = record.newer
  if not is_quiet then
    record.newer = of_key.breaker:snapshot(rules, now_ms).duration_counts
  end
end

local function answered_by_fallbacks(guard)
  local n = 0
  for _, row in ipairs(guard:stats().fallbacks) do
    if row.result == "answered" then n = n + row.count end
  end
  return n
end

--- Since one to two minutes: what fallbacks answered, of what was asked.
---@return number|nil share nil: nothing was asked
function Recent:fallback_share(guard)
  local of_policy = self:policy(guard.name)
  local from = of_policy.older or { answered = 0, asked = 0 }
  local asked = of_policy.asked - from.asked
  if asked <= 0 then return nil end
  return math.min(1, (answered_by_fallbacks(guard) - from.answered) / asked)
end

local function end_step(self)
  self.step = self.step + 1
  local guards = self.guards()
  for name, of_policy in pairs(self.of) do
    for key, record in pairs(of_policy.keys) do
      if record.seen < self.step then of_policy.keys[key] = nil end
    end
    if not guards[name] then
      self.of[name] = nil
    elseif self.step % STEPS_PER_MINUTE == 0 then
      of_policy.older = of_policy.newer
      of_policy.newer = { answered = answered_by_fallbacks(guards[name]), asked = of_policy.asked }
    end
  end
end

--- Goes on with a step, or begins one: looks at some breakers, so that no call has to wait for all
--- of them.
---@param most integer
---@return boolean more to look at before the step is whole
function Recent:look(most)
  if not self.left then
    self.left = {}
    for name, guard in pairs(self.guards()) do
      self:policy(name, guard)
      for key in pairs(guard.lines) do self.left[#self.left + 1] = { guard, key } end
    end
  end
  for _ = 1, most do
    local one = table.remove(self.left)
    if not one then break end
    look(self, one[1], one[2])
  end
  if self.left[1] then return true end
  self.left = nil
  end_step(self)
  return false
end

-- ---- What is asked ----------------------------------------------------------------------------

--- The points of the steps after `step`, flat, oldest first; nil: none had a call.
---@return integer[]|nil
function Recent:points(record, step)
  if not record.points then return nil end
  local list = {}
  for one = math.max(step, self.step - POINTS + 1) + 1, self.step do
    for i = 1, SERIES do list[#list + 1] = record.points[one % POINTS * SERIES + i] end
  end
  return list
end

--- The bound that so many of the durations of the last one to two minutes are not over.
---@return number|nil ms nil: no calls, or over the last bound
---@return boolean|nil is_over
function recent.quantile(record, row, share)
  local since, total = record.older, 0
  local counts = {}
  for i, n in ipairs(row.duration_counts) do
    counts[i] = math.max(0, n - (since and since[i] or 0))
    total = total + counts[i]
  end
  if total == 0 then return nil end
  local sum = 0
  for i, n in ipairs(counts) do
    sum = sum + n
    if sum >= share * total then
      local bound = row.duration_bounds_ms[i]
      return bound or row.duration_bounds_ms[i - 1], not bound
    end
  end
end

---@class neap.page.recent.options
---@field guards fun(): table<string, neap.guard> by policy
---@field wall_ms fun(at_ms: number): integer an instant of the guards' clock, since 1970

---@param options neap.page.recent.options
---@return neap.page.Recent
function recent.new(options)
  local self = setmetatable({
    guards = options.guards, wall_ms = options.wall_ms, step = 0, of = {},
  }, Recent)
  for name, guard in pairs(self.guards()) do self:policy(name, guard) end
  return self
end

--- Looks at the breakers from now on, on a libuv loop, which it does not keep running.
---@param self neap.page.Recent
---@param uv table luv
function recent.run(self, uv)
  local SOME, SOON_MS = 50, 2
  local timer, begun = uv.new_timer(), uv.now()
  timer:unref()
  local function tick()
    if not self.left then
      local late_ms = uv.now() - begun - STEP_MS -- a machine that slept does not catch up
      begun = begun + STEP_MS + (late_ms > STEP_MS and late_ms or 0)
    end
    local ok, more = pcall(self.look, self, SOME)
    if not ok then self.left = nil end
    local wait_ms = ok and more and SOON_MS or math.max(SOON_MS, begun + STEP_MS - uv.now())
    timer:start(wait_ms, 0, tick)
    if not ok then error(more, 0) end
  end
  timer:start(STEP_MS, 0, tick)
end

return recent
