--- Trying again: which failed calls may be made once more, after how long, and how many in all.
--
--     a call of the guard    --> + budget of a token      \
--     a second that goes by  --> + budget_per_s tokens     > tokens, as many as RESERVE_S bring
--     a retry                --> - 1 token                /
--
-- However much fails, in t seconds with n calls there are at most budget * n + budget_per_s * t
-- retries, and the reserve.  All of it is the guard's, for all its keys, and stays when a policy is
-- loaded again.  Tokens are counted in whole millionths.
--
-- A retry is made only while the breaker lets ordinary calls through: never across an open one, and
-- never as another probe for a probe that failed.

local core = require "neap.core"

local floor, max, min = math.floor, math.max, math.min

local retry = {}

local TOKEN = 1000000
local RESERVE_S, LEAST_RESERVE = 10, 10 -- seconds of budget_per_s; tokens

--- What became of the wish to try again.
retry.results = {
  "success", "failure", "neutral", -- of the retry that was made
  "budget",   -- none was made: the budget is spent,
  "deadline", -- or it would have come too late for the caller, or for max_ms: Retry-After,
  "refused",  -- or the breaker is not closed, or the bulkhead full
}

---@alias neap.RetryResult "success"|"failure"|"neutral"|"budget"|"deadline"|"refused"

---@class neap.Retries of a guard
---@field counts table<neap.RetryResult, integer>
---@field private tokens integer millionths
---@field private at_ms integer|nil up to then, time has brought its tokens
---@field private random integer the generator's state
local Retries = {}
Retries.__index = Retries

-- ---- Chance -----------------------------------------------------------------------------------

--- A whole number from 0 to `most`: Lehmer's generator, whose numbers every Lua has exactly.
local function random(self, most)
  self.random = self.random * 48271 % 2147483647
  return self.random % (most + 1)
end

--- Full jitter: callers that failed together do not come back together.
---@param rules table the policy's retry
---@param made integer so many times the call has been made
---@return integer ms
function Retries:backoff_ms(rules, made)
  return random(self, min(rules.max_ms, rules.base_ms * floor(2 ^ (made - 1))))
end

-- ---- Budget -----------------------------------------------------------------------------------

local function reserve_of(rules)
  local least = rules.budget > 0 and LEAST_RESERVE or 0
  return max(least, RESERVE_S * rules.budget_per_s) * TOKEN
end

local function add(self, rules, tokens)
  self.tokens = min(self.tokens + tokens, reserve_of(rules))
end

--- So many calls have begun, retries not counted.
---@param rules table
---@param n integer
function Retries:called(rules, n)
  add(self, rules, floor(rules.budget * TOKEN + 0.5) * n)
end

local function refill(self, rules, now_ms)
  local past_ms = max(0, min(now_ms - (self.at_ms or now_ms), RESERVE_S * 1000))
  self.at_ms = now_ms
  add(self, rules, past_ms * rules.budget_per_s * 1000) -- millionths a ms
end

--- Takes a retry from the budget, if there is one.
---@return boolean
function Retries:take(rules, now_ms)
  refill(self, rules, now_ms)
  if self.tokens < TOKEN then return false end
  self.tokens = self.tokens - TOKEN
  return true
end

--- How many retries the budget has now.
---@param rules table|nil
---@return integer
function Retries:left(rules, now_ms)
  if not rules then return 0 end
  refill(self, rules, now_ms)
  return floor(self.tokens / TOKEN)
end

function Retries:count(result)
  self.counts[result] = self.counts[result] + 1
end

--- What a retry came to that was made.
---@param outcome neap.Outcome
function Retries:ended(outcome)
  self:count((outcome == "success" or outcome == "neutral") and outcome or "failure")
end

-- ---- Which calls ------------------------------------------------------------------------------

local IDEMPOTENT = {
  GET = true, HEAD = true, OPTIONS = true, TRACE = true, PUT = true, DELETE = true,
}
local FAILED = { failure = true, timeout = true }

--- May a request be sent twice, by its method?
---@param request table|nil
---@return boolean
function retry.is_idempotent(request)
  return request ~= nil and IDEMPOTENT[request.method] == true
end

local NOBODY_KNOWS = "what fails is not tried again: nobody knows whether the calls may be made "
  .. "twice; let the policy's retry.on say so"

--- Without retry.on: what was never sent, and what may be sent twice.
local function is_safe(guard, call)
  if call.phase == "connect" then return true end
  local request = call.request
  if request then return retry.is_idempotent(request) end
  guard:warn("retry", NOBODY_KNOWS)
  return false
end

local function is_retryable(guard, rules, call)
  if not rules.on then return is_safe(guard, call) end
  local ok, answer, fault = core.protect(rules.on, call)
  if not ok then answer, fault = false, answer end
  if fault then guard:fault("retry.on", fault) end
  return answer == true
end

local MAY_TRY = { allow = true, bypass = true }

--- Is there to be another try?  Counts why not, and takes it from the budget if so.
---@param line table
---@param policy table the generation that the call belongs to
---@param call table as classify saw it
---@param outcome neap.Outcome of the last try
---@param retry_after_ms integer|nil what the answer asked for
---@param made integer how many tries there were
---@param left_ms number until the call's deadline
---@return integer|nil wait_ms before the next one; nil: there is none
---@return boolean|nil was_asked_for the dependency asked for that wait
function retry.next(line, policy, call, outcome, retry_after_ms, made, left_ms)
  local guard, rules = line.guard, policy.retry
  local retries = guard.retries
  if not rules or made >= rules.attempts or not FAILED[outcome] then return nil end
  if not is_retryable(guard, rules, call) then return nil end
  local now_ms = line.native:now()
  if not MAY_TRY[line.breaker:peek(guard.policy.rules, now_ms)] then
    return retries:count "refused"
  end
  local asked_ms = max(0, retry_after_ms or 0)
  local wait_ms = max(asked_ms, retries:backoff_ms(rules, made))
  if asked_ms > rules.max_ms or wait_ms >= left_ms then return retries:count "deadline" end
  if not retries:take(rules, now_ms) then return retries:count "budget" end
  return wait_ms, asked_ms > 0
end

---@param seed integer what chance begins with
---@return neap.Retries
function retry.new(seed)
  local counts = {}
  for _, result in ipairs(retry.results) do counts[result] = 0 end
  return setmetatable({
    counts = counts, tokens = LEAST_RESERVE * TOKEN, random = floor(seed % 2147483646) + 1,
  }, Retries)
end

return retry
