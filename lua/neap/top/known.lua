--- What neap top knows of the breakers, and what that means: the answers of /live, put together.
--- What a row means is said for browsers in neap/page/tiles.js; the two say the same.

local known = {}

local SERIES = 4 -- ok, slow, failed, refused

---@class neap.top.Row fields as of neap.page.live, and
---@field id string
---@field ring number[] what became of calls, step by step, the newest last
---@field step integer the last that is in it
---@field rank integer 0: in trouble, … 4: well

---@class neap.top.Known
---@field rows table<string, neap.top.Row> by id
---@field policies table<string, table> by name
---@field ahead_ms number neap's clock over ours
local Known = {}
Known.__index = Known

-- ---- What came --------------------------------------------------------------------------------

--- Moves a row's ring on to `step`; what is not told are steps without calls.
local function advance(self, row, step, points)
  local length, by = self.steps * SERIES, math.min((step - row.step), self.steps) * SERIES
  if by > 0 then
    table.move(row.ring, by + 1, length, 1)
    for i = length - by + 1, length do row.ring[i] = 0 end
    row.step = step
  end
  if points then table.move(points, 1, #points, length - #points + 1, row.ring) end
end

local function new_row(self, id, step)
  local row = { id = id, step = step, ring = {} }
  for i = 1, self.steps * SERIES do row.ring[i] = 0 end
  return row
end

local function take_row(self, fields, list, step, null)
  local told = {}
  for i, field in ipairs(fields) do
    if list[i] ~= null then told[field] = list[i] end
  end
  local id = told.policy .. "/" .. told.key
  local row = self.rows[id] or new_row(self, id, step)
  local points = told.points
  for _, field in ipairs(fields) do row[field] = told[field] end
  row.points = nil
  advance(self, row, step, points)
  self.rows[id] = row
  return id
end

--- Takes an answer over.
---@param answer table of /live
---@param our_ms number since 1970
---@param null any what stands for nothing in it
function Known:take(answer, our_ms, null)
  local is_whole = answer.instance ~= self.instance or self.version == 0
  if answer.instance ~= self.instance then self.rows = {} end
  self.steps, self.step_ms, self.policies = answer.steps, answer.step_ms, {}
  for _, policy in ipairs(answer.policies) do
    for name, value in pairs(policy) do
      if value == null then policy[name] = nil end
    end
    self.policies[policy.name] = policy
  end
  local told, count = {}, 0
  for _, list in ipairs(answer.rows) do
    told[take_row(self, answer.fields, list, answer.step, null)] = true
  end
  for id, row in pairs(self.rows) do
    if is_whole and not told[id] then
      self.rows[id] = nil
    else
      if not told[id] then advance(self, row, answer.step) end
      count = count + 1
    end
  end
  self.instance, self.step, self.ahead_ms = answer.instance, answer.step, answer.now - our_ms
  -- Some are gone that were not told of: ask for all, the next time.
  self.version = count == answer.count and answer.version or 0
end

--- The page that says what changed since.
---@return string path
function Known:path()
  return ("/live?of=%s&since=%.0f&step=%.0f"):format(self.instance, self.version, self.step)
end

-- ---- What it means ----------------------------------------------------------------------------

local function percent(share)
  local n = share * 100
  return (n > 0 and n < 1) and "<1 %" or (n > 99 and n < 100) and ">99 %" or ("%.0f %%"):format(n)
end
known.percent = percent

--- The policy's rules, each with what is measured, its limit, and how near that is (1: reached).
function Known:rules(row)
  local policy, rules = self.policies[row.policy], {}
  if not policy then return rules end
  local limits = policy.limits
  local function by_rate(part, limit, noun)
    local share, least = row.calls > 0 and part / row.calls or 0, limits.minimum_calls or 1
    local is_enough = row.calls >= least
    rules[#rules + 1] = {
      text = row.calls > 0 and percent(share) .. " " .. noun or "no calls",
      limit = percent(limit) .. (is_enough and "" or (" of %.0f calls"):format(least)),
      near = is_enough and share / limit or 0,
    }
  end
  local function by_count(n, limit, noun)
    rules[#rules + 1] = { text = ("%.0f %s"):format(n, noun), limit = ("%.0f"):format(limit),
      near = n / limit }
  end
  if limits.failure_rate then by_rate(row.failures, limits.failure_rate, "failed") end
  if limits.slow_rate then by_rate(row.slow, limits.slow_rate, "slow") end
  if limits.failures then by_count(row.failures, limits.failures, "failures") end
  if limits.consecutive_failures then
    by_count(row.in_a_row, limits.consecutive_failures, "in a row")
  end
  return rules
end

---@return { text: string, limit: string, near: number }|nil
function Known:nearest(row)
  local nearest
  for _, rule in ipairs(self:rules(row)) do
    if not nearest or rule.near > nearest.near then nearest = rule end
  end
  return nearest
end

local STATES = { open = "open", half_open = "half-open", closed = "closed" }

--- How its state is called, and how it is to look.
---@return string text
---@return "open"|"half"|"hand"|"well" look
function known.look(row)
  if row.mode == "forced_open" then return "FORCED OPEN", "open" end
  if row.mode == "forced_closed" then return "forced closed", "hand" end
  local look = row.state == "open" and "open" or row.state == "half_open" and "half" or "well"
  if row.mode == "shadow" then
    return STATES[row.state] .. ", shadow", look == "well" and look or "hand"
  end
  if look == "open" then return "OPEN", look end
  return row.state == "closed" and row.admitted < 1 and "closing" or STATES[row.state], look
end

local RANKS = { open = 0, half = 1, hand = 2 }

--- Near its limit it stays so until it is well away from it.
local function rank_of(self, row)
  local _, look = known.look(row)
  if RANKS[look] then return RANKS[look] end
  if row.admitted < 1 then return 2 end
  local rule = self:nearest(row)
  local near = rule and rule.near or 0
  row.is_warm = near >= 0.5 or row.is_warm and near >= 0.3
  return row.is_warm and 3 or 4
end

--- Calls in a second of the last whole step.
function Known:rate(row)
  local n = 0
  for i = #row.ring - SERIES + 1, #row.ring do n = n + row.ring[i] end
  return n / (self.step_ms / 1000)
end

--- The last steps: how many calls there were, and whether more went wrong than well.
---@return { calls: number, is_bad: boolean }[]
function known.steps_of(row, most)
  local list = {}
  for at = math.max(0, #row.ring - most * SERIES), #row.ring - SERIES, SERIES do
    local ok, bad = row.ring[at + 1] + row.ring[at + 2], row.ring[at + 3] + row.ring[at + 4]
    list[#list + 1] = { calls = ok + bad, is_bad = bad > ok }
  end
  return list
end

-- ---- Which, in which order --------------------------------------------------------------------

known.sorts = { "trouble", "name", "calls/s" }

local function by_name(a, b) return a.id < b.id end

local SORTS = {
  name = by_name,
  trouble = function(a, b)
    if a.rank ~= b.rank then return a.rank < b.rank end
    return by_name(a, b)
  end,
  ["calls/s"] = function(a, b)
    if a.rate ~= b.rate then return a.rate > b.rate end
    return by_name(a, b)
  end,
}

local function is_wanted(row, text)
  local _, look = known.look(row)
  local of_row = (row.id .. " " .. row.state .. " " .. row.mode .. " " .. look .. " "
    .. (row.set or row.moved or "")):lower()
  for word in text:lower():gmatch "%S+" do
    if not of_row:find(word, 1, true) then return false end
  end
  return true
end

---@param text string words that each has to have
---@param sort string
---@return neap.top.Row[]
function Known:list(text, sort)
  local list = {}
  for _, row in pairs(self.rows) do
    row.rank, row.rate = rank_of(self, row), self:rate(row)
    if is_wanted(row, text) then list[#list + 1] = row end
  end
  table.sort(list, SORTS[sort])
  return list
end

local FORCED = { forced_open = "open", forced_closed = "closed" }

--- By what they are to those who call, and by hand as well.
---@return { open: integer, half_open: integer, closed: integer, hand: integer }
function Known:counts()
  local counts = { open = 0, half_open = 0, closed = 0, hand = 0 }
  for _, row in pairs(self.rows) do
    local state = FORCED[row.mode] or row.state
    counts[state] = counts[state] + 1
    if row.mode ~= "auto" then counts.hand = counts.hand + 1 end
  end
  return counts
end

---@return neap.top.Known
function known.new()
  return setmetatable({ rows = {}, policies = {}, version = 0, step = 0, instance = "",
    ahead_ms = 0, steps = 0, step_ms = 1000 }, Known)
end

return known
