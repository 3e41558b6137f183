--- What happens in the running program, told to those who follow it. Runs in the engine's Lua.
---
---   breakers, policies --> engine --> the log --> here --> feed --> GET /events
---                                                    \----> webhook: transitions

local engine = require "neap.engine"
local event = require "neap.event"
local feed = require "neap.cmd.feed"
local uv = require "luv"
local webhook = require "neap.cmd.webhook"

local events = {}

local BEAT_MS = 15000

--- Kinds, as the log calls them.
local NAMES = {
  reloaded = "reload", gone = "policy_gone", orphaned = "policy_orphaned", back = "policy_back",
}
local KINDS = {
  "transition", "shadow", "reload", "reload_failed", "params", "policy_gone", "policy_orphaned",
  "policy_back",
}

--- This instant as people read it.
local function stamp()
  local seconds, microseconds = uv.gettimeofday()
  return os.date("!%Y-%m-%dT%H:%M:%S", seconds) .. (".%03dZ"):format(microseconds // 1000)
end

--- What is told of an event: one table for all who are.
local function fields_of(told)
  local is_moved = told.kind == "transition" or told.kind == "shadow"
  local fields = is_moved and event.row(told) or { policy_hash = told.hash, text = told.text }
  fields.kind = NAMES[told.kind] or told.kind
  fields.policy, fields.key, fields.at = told.policy, told.key, stamp()
  if told.shadow then fields.shadow = told.shadow end
  return fields
end

--- As neap.admin asks for.
function events.follow(seen, recent) return events.feed:follow(seen, recent) end

local function family(name, kind, help, ...)
  return { name = name, type = kind, help = help, ... }
end

--- Families of the webhook, if there is one.
local function webhook_families(of)
  if not of then return end
  local all = family("neap_webhook_total", "counter",
    "Transitions by what became of them: delivered; refused by the webhook, expired after an hour "
    .. "of trials, or pushed out of a full queue: dropped.")
  for _, result in ipairs(webhook.results) do
    all[#all + 1] = { labels = { "result", result }, value = of.counts[result] }
  end
  return all,
    family("neap_webhook_retries_total", "counter", "Trials that failed and are made again.",
      { value = of.retries }),
    family("neap_webhook_queue", "gauge", "Transitions that wait for the webhook.",
      { value = of:waiting() })
end

--- Families for the metrics page.
---@param numbers table of C
function events.metrics(numbers)
  local of = events.feed
  local all = family("neap_events_total", "counter", "Events, by kind.")
  for _, kind in ipairs(KINDS) do
    all[#all + 1] = { labels = { "kind", kind }, value = of.counts[kind] or 0 }
  end
  return {
    all,
    family("neap_events_followers", "gauge", "Clients that follow GET /events now.",
      { value = of.following }),
    family("neap_events_cut_total", "counter",
      "Followers that were cut off, as they did not take what was sent.",
      { value = numbers.followers_cut }),
    family("neap_events_missed_total", "counter",
      "Events that followers came back too late for.", { value = of.missed }),
    webhook_families(events.webhook),
  }
end

--- What came of the event that was posted.
function events.posted(status, failure) events.webhook:done(status, failure) end

--- The program ends: what was not delivered is not going to be.
function events.close()
  local lost = events.webhook:waiting()
  if lost == 0 then return end
  events.host.log("warn", ("webhook %s: neap ends before %d transition%s could be delivered")
    :format(events.webhook.host, lost, lost == 1 and "" or "s"))
end

local function later(ms, f)
  local timer = assert(uv.new_timer())
  timer:unref()
  timer:start(math.ceil(ms), 0, function()
    timer:close()
    f()
  end)
end

local function new_webhook(host)
  return webhook.new {
    host = host.webhook, post = host.post, log = host.log, later = later, random = math.random,
    now = function() return uv.hrtime() / 1e6 end,
  }
end

---@param host table kept: how many messages; webhook: its host, or nil; wake, post, log: functions
function events.open(host)
  local seconds, microseconds = uv.gettimeofday()
  events.feed = feed.new {
    boot = ("%x%05x"):format(seconds, microseconds), kept = host.kept, on_more = host.wake,
  }
  events.host, events.webhook = host, host.webhook and new_webhook(host)
  engine.listen(function(told)
    local fields = fields_of(told)
    events.feed:push(fields.kind, fields)
    if events.webhook and fields.kind == "transition" then events.webhook:push(fields) end
  end)
  local timer = uv.new_timer()
  timer:start(BEAT_MS, BEAT_MS, function() events.feed:beat() end)
  timer:unref()
end

return events
