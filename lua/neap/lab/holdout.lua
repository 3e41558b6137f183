--- Whether what tuning chooses holds on calls that it has not seen: chosen once more, by the first
--- two thirds of the log's time alone, and what that does in the rest.
--
--   |<--------- first: chosen by this --------->|<---- rest: what it does ---->|

local tune = require "neap.lab.tune"

local holdout = {}

local SHARE = 2 / 3

--- What is counted when a call is read; all else when its turn comes.
local WHEN_READ = { calls = true, failure = true, cut_good = true, cut_ms = true }

--- The last look before that.
local function last_before(list, ms)
  local found
  for _, mark in ipairs(list) do
    if mark.to_ms > ms then return found end
    found = mark
  end
end

--- Where the log is parted, and what its lanes had come to by then; nil: it is too short for that.
---@param result neap.lab.replay.Result with marks
---@return integer|nil until_ms
---@return (fun(lane: integer, name: string): integer)|nil count
function holdout.part(result)
  local source = result.source
  local until_ms = math.floor(source.from_ms + (source.to_ms - source.from_ms) * SHARE)
  local read = last_before(result.marks, until_ms)
  local done = last_before(result.marks, until_ms + result.behind_ms)
  if not read or not done then return nil end
  return until_ms, function(lane, name)
    return (WHEN_READ[name] and read or done).counts[lane][name]
  end
end

--- The rows of the first part, each with `rest`, the row of what came after.
local function parted(rows)
  local made = {}
  for i, row in ipairs(rows) do
    local first, rest = row.first, {}
    for name, count in pairs(row.counts) do rest[name] = count - first[name] end
    made[i] = tune.row(row, first)
    made[i].rest = tune.row(row, rest)
  end
  return made
end

--- How it compares with the policy as it is in the rest.
---@alias neap.lab.holdout.Against
---| "better" # no worse in either
---| "worse"  # no better in either
---| "less"   # it costs less and spares less
---| "more"   # it costs more and spares more

---@return neap.lab.holdout.Against
local function against(chosen, now, gain)
  local costs, spares = chosen.rest.lost - now.rest.lost, chosen.rest[gain] - now.rest[gain]
  if costs <= 0 and spares >= 0 then return "better" end
  if costs >= 0 and spares <= 0 then return "worse" end
  return costs < 0 and "less" or "more"
end

---@class (exact) neap.lab.holdout.Verdict
---@field until_ms integer the first part's end, since 1970
---@field chosen? neap.lab.tune.Row of the first part, with `rest`; nil: that is too little
---@field lacks? string why it is too little
---@field now neap.lab.tune.Row likewise, of the policy as it is
---@field is_same boolean the recommended one is as good there
---@field has_outage boolean some version opens in the rest
---@field against? neap.lab.holdout.Against

--- Chooses by the first part; nil if nothing is recommended, or the log is too short to be parted.
---@param rows neap.lab.tune.Row[] each with counts and first
---@param varied { key: string, values: any[] }[]
---@param recommended neap.lab.tune.Row|nil
---@param until_ms integer|nil
---@return neap.lab.holdout.Verdict|nil
function holdout.check(rows, varied, recommended, until_ms)
  if not recommended or not until_ms then return nil end
  local made, has_outage, same = parted(rows), false, nil
  local verdict = tune.judge(made, varied)
  for i, row in ipairs(made) do
    has_outage = has_outage or row.rest.opened > 0
    if rows[i] == recommended then same = row end
  end
  local chosen = verdict.chosen
  local is_same = chosen and same.gain == chosen.gain and same.lost == chosen.lost or false
  if is_same then chosen = same end
  return {
    until_ms = until_ms, lacks = verdict.lacks, now = made[1], has_outage = has_outage,
    is_same = is_same, chosen = chosen,
    against = chosen and not chosen.is_now and against(chosen, made[1], verdict.gain) or nil,
  }
end

return holdout
