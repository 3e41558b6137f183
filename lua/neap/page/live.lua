--- What the page and `neap top` ask for every other second, told shortly: /live.
---
---   GET /live                              all breakers, each with its last minutes
---   GET /live?of=I&since=V&step=S          of the same process: what changed since version V, with
---                                          the points after step S
---   GET /live/POLICY/KEY                   all about one, with its last transitions
---
--- A row is a list; `fields` says what stands where: p50 and p99 are bounds that durations were not
--- over, but if `over` is 1 p99 was, if 2 both.  Instants are milliseconds since 1970 on this
--- machine's clock, and `now` is what that says.

local characters = require "neap.characters"
local core = require "neap.core"
local json = require "neap.cmd.json"
local page = require "neap.page"
local recent = require "neap.page.recent"
local status = require "neap.cmd.status"

local live = {}

local ROWS_AT_ONCE = 32 -- a part of the answer

---@class neap.page.Live
---@field recent neap.page.Recent
---@field version integer
---@field instance string which process: what is told since another one's version means nothing
local Live = {}
Live.__index = Live

-- ---- Rows -------------------------------------------------------------------------------------

local FIELDS = {
  "policy", "key", "state", "mode", "mode_until", "calls", "failures", "slow", "in_a_row",
  "admitted", "level", "probe_at", "probes_in_flight", "probes_succeeded", "probes_failed",
  "neutral_share",
  "p50", "p99", "over", "set", "moved_at", "moved", "points",
}

--- An instant to come, which a reading of the clock does not move; never told too early.
local function soon(ms) return math.ceil(ms / 100) * 100 end

local function list_of(texts) return "[" .. table.concat(texts, ",") .. "]" end

local function text_of(value)
  if type(value) == "number" then return json.number(value) end
  if type(value) == "string" then return json.text(value) end
  return value and "true" or value == nil and "null" or "false"
end

local function share(n) return math.floor(n * 1000 + 0.5) / 1000 end

--- The row without its points; all of it that changes with the clock alone is an instant.
local function row_text(record, row, now)
  local moved = record.moves[#record.moves]
  for i = #record.moves, 1, -1 do
    if moved.shadow then moved = record.moves[i - 1] else break end
  end
  local p50, is_over50 = recent.quantile(record, row, 0.5)
  local p99, is_over99 = recent.quantile(record, row, 0.99)
  local values, n = {
    row.policy, characters.of(row.key), row.state, row.mode,
    row.mode_left_ms > 0 and soon(now + row.mode_left_ms) or 0,
    row.calls, row.failure + row.slow_failure, row.slow_success + row.slow_failure,
    row.consecutive_failures, share(row.admitted), row.level,
    row.retry_after_ms > 0 and soon(now + row.retry_after_ms) or 0,
    row.probes_in_flight, row.probes_succeeded, row.probes_failed, share(row.neutral_share),
    p50, p99, is_over50 and 2 or is_over99 and 1 or 0, row.set,
    moved and moved.at, moved and moved.text,
  }, #FIELDS - 1
  local texts = {}
  for i = 1, n do texts[i] = text_of(values[i]) end
  return table.concat(texts, ",")
end

--- Who set the mode, and why.
local function set_text(set)
  if not set then return nil end
  local by = set.by and ("set by %s"):format(set.by) or "set by hand"
  return set.reason and ("%s: %s"):format(by, set.reason) or by
end

--- Nil: there is nothing to be shown.  That nobody has used the breaker of keys without room, or of
--- calls without a key, is nothing, unless that is the only one.
local function row_of(guard, key, is_alone)
  local row = guard:snapshot(key)
  if not row then return nil end
  row.last_transition, row.set = guard:last_transition(key), set_text(guard:operator(key))
  local is_spare = key == "*" or key == "default" and not is_alone
  if is_spare and status.is_unused(row) then return nil end
  return row
end

--- Of a change that this request sees.  A later one may have passed the breaker already; then the
--- change is newer than that, too.
local function next_version(self, asked)
  if self.version > asked.version then self.version = self.version + 1 end
  return self.version
end

--- The breaker's row if it has changed since; and whether there is one at all.
local function changed_row(self, guard, key, now, asked)
  local row = row_of(guard, key, asked.is_alone)
  if not row then return nil, false end
  local record = self.recent:record(guard.name, key)
  local text = row_text(record, row, now)
  local totals = row.totals
  -- A full window of steady calls looks the same all the time.
  local mark = totals.success + totals.slow_success + totals.failure + totals.slow_failure
    + totals.refused_open + totals.refused_forced + totals.refused_probes + totals.refused_ramp
  -- The point of a step comes after its calls, when the step is whole.
  local busy = record.busy or 0
  if busy > self.recent.step then busy = -busy end
  if text ~= record.text or mark ~= record.mark or busy ~= record.told then
    record.text, record.mark, record.told = text, mark, busy
    record.changed = next_version(self, asked)
  end
  if record.changed <= asked.since then return nil, true end
  local points = self.recent:points(record, asked.step)
  return ("[%s,%s]"):format(text, points and list_of(points) or "null"), true
end

-- ---- Policies ---------------------------------------------------------------------------------

local LIMITS = { "failures", "failure_rate", "slow_rate", "consecutive_failures", "minimum_calls",
  "slow_call_ms", "probes", "successes" }

--- What is to be known of a policy to read its breakers' rows: the numbers they are judged by.
local function policy_text(self, name, guard, row)
  local numbers, limits = guard.policy.rules:numbers(), {}
  for _, limit in ipairs(LIMITS) do
    if numbers[limit] > 0 then limits[#limits + 1] = ('"%s":%s'):format(limit,
      json.number(numbers[limit])) end
  end
  local fallbacks = self.recent:fallback_share(guard)
  return ('{"name":%s,"limits":{%s},"trips":%s,"mode":%s,"fallbacks":%s,"error":%s}'):format(
    json.text(name), table.concat(limits, ","), guard.policy.trip and "true" or "false",
    json.text(guard.policy.mode or "auto"), text_of(fallbacks and share(fallbacks)),
    row and row.error and json.text(tostring(row.error)) or "null")
end

local function policies_text(self, names, guards)
  local rows, texts = {}, {}
  for _, row in ipairs(self.rows()) do rows[row.name] = row end
  for i, name in ipairs(names) do
    texts[i] = policy_text(self, name, guards[name], rows[name])
  end
  return list_of(texts)
end

-- ---- The answer -------------------------------------------------------------------------------

--- What the client has already; what another process told it is nothing.
local function read(self, query)
  local given = {}
  for name, value in query:gmatch("([%w_]+)=([%w.]*)") do given[name] = value end
  local is_ours = given.of == self.instance
  return {
    since = is_ours and tonumber(given.since) or 0,
    step = is_ours and tonumber(given.step) or 0,
    version = self.version,
  }
end

local HEAD = '{"instance":"%s","page":"%s","version":%d,"now":%s,"step":%d,"step_ms":%d,'
  .. '"steps":%d,\n'
  .. '"fields":%s,\n"policies":%s,\n"rows":['

local function head_text(self, names, guards, now, version)
  local fields = {}
  for i, field in ipairs(FIELDS) do fields[i] = json.text(field) end
  return HEAD:format(self.instance, page.version(), version, json.number(now), self.recent.step,
    recent.STEP_MS, recent.POINTS, list_of(fields), policies_text(self, names, guards))
end

--- The answer in parts: there may be thousands of breakers.
---@param query string
---@return fun(): string|nil
function Live:parts(query)
  self.version = self.version + 1
  local guards, names, asked = self.guards(), {}, read(self, query)
  for name in pairs(guards) do names[#names + 1] = name end
  table.sort(names)
  return coroutine.wrap(function()
    local now = self.wall_ms(self.now_ms())
    local texts, count, before = {}, 0, ""
    coroutine.yield(head_text(self, names, guards, now, asked.version))
    for _, name in ipairs(names) do
      local keys = {} -- not guard:breakers(), which sorts: of thousands that takes its time
      for key in pairs(guards[name].lines) do keys[#keys + 1] = key end
      asked.is_alone = #keys <= 2 -- "*" and "default"
      for i, key in ipairs(keys) do
        local text, is_shown = changed_row(self, guards[name], key, now, asked)
        if is_shown then count = count + 1 end
        texts[#texts + 1] = text
        if #texts > 0 and i % ROWS_AT_ONCE == 0 then
          coroutine.yield(before .. "\n" .. table.concat(texts, ",\n"))
          texts, before = {}, ","
        end
      end
    end
    if #texts > 0 then coroutine.yield(before .. "\n" .. table.concat(texts, ",\n")) end
    coroutine.yield(('],\n"count":%d}\n'):format(count))
  end)
end

---@param guard neap.guard
---@param key string
---@return neap.page.Move[] newest first
function Live:moves(guard, key)
  local moves, list = self.recent:record(guard.name, key).moves, {}
  for i, move in ipairs(moves) do list[#moves + 1 - i] = move end
  return list
end

---@class neap.page.live.options
---@field guards fun(): table<string, neap.guard> by policy
---@field rows fun(): neap.reload.row[]
---@field now_ms fun(): number the guards' clock
---@field wall_ms fun(at_ms: number): integer an instant of it, since 1970

---@param options neap.page.live.options
---@return neap.page.Live
function live.new(options)
  return setmetatable({
    guards = options.guards, rows = options.rows, now_ms = options.now_ms,
    wall_ms = options.wall_ms, version = 0, instance = ("%.0f"):format(core.seed()),
    recent = recent.new { guards = options.guards, wall_ms = options.wall_ms },
  }, Live)
end

return live
