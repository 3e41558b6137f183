--- Every key of a policy file, once: what it is, its range, its default and a sentence that says
-- what it does.  Validation, the effective configuration, error texts and docs/policies.md are made
-- from here.
--
-- The ranges are those of neap.h, which checks the numbers again.

local schema = {}

local HOUR_MS = 60 * 60 * 1000
local DAY_MS = 24 * HOUR_MS

---@alias neap.schema.kind
---| "table"      # a section, whose keys are listed below it
---| "whole"      # a whole number from min to max
---| "ms"         # a whole number of milliseconds from min to max
---| "share"      # a number from 0 to 1
---| "positive share" # a number over 0, up to 1
---| "factor"     # a number from min to max
---| "choice"     # one of `choices`
---| "text"       # a string that is not empty
---| "function"
---| "classifier" # a function, or a table that can be called
---| "causes"     # a list of `choices`
---| "stages"     # a list of fallback stages
---| "texts"      # a list of strings that are not empty
---| "file"       # a file's name: letters, digits, _ - .
---| "boolean"
---| "any"        # any value but nil

---@class (exact) neap.schema.key
---@field key string its path in the table that a policy file returns
---@field kind neap.schema.kind
---@field min? integer
---@field max? integer
---@field choices? string[]
---@field default? any what is in force without it; nil: nothing, or as default_doc says
---@field default_doc? string
---@field required? boolean
---@field rule? string the member of neap_rules that it sets
---@field doc string

local MODES = { "auto", "forced_open", "forced_closed", "shadow" }
schema.causes = { "refused", "timeout", "failure", "neutral", "success" }

---@type neap.schema.key[]
schema.keys = {
  { key = "name", kind = "text", required = true,
    doc = "The policy's identity: the file's name without .lua." },

  { key = "window", kind = "table", doc = "What is remembered of the calls." },
  { key = "window.kind", kind = "choice",
    choices = { "time", "count" }, default = "time", rule = "window",
    doc = "Calls of the last length_ms, or the last `calls` calls." },
  { key = "window.length_ms", kind = "ms", min = 100, max = HOUR_MS, default = 10000,
    rule = "length_ms",
    doc = "How far back a time window goes." },
  { key = "window.calls", kind = "whole", min = 1, max = 1024, default = 100, rule = "calls",
    doc = "How many calls a count window holds." },

  { key = "trip", kind = "table", required = true,
    doc = "When the breaker opens: as soon as any of these rules holds.  At least one is needed." },
  { key = "trip.failures", kind = "whole", min = 1, max = 1000000, rule = "failures",
    doc = "So many failures in the window." },
  { key = "trip.consecutive_failures", kind = "whole", min = 1, max = 1000000,
    rule = "consecutive_failures",
    doc = "So many failures in a row, however long they took to come." },
  { key = "trip.failure_rate", kind = "positive share", rule = "failure_rate",
    doc = "Such a share of the calls in the window failed." },
  { key = "trip.slow_rate", kind = "positive share", rule = "slow_rate",
    doc = "Such a share of the calls in the window was slow.  Needs slow_call_ms." },
  { key = "trip.slow_call_ms", kind = "ms", min = 1, max = HOUR_MS, rule = "slow_call_ms",
    doc = "A call that takes longer is slow." },
  { key = "trip.minimum_calls", kind = "whole", min = 1, max = 1000000, rule = "minimum_calls",
    default_doc = "10, or window.calls if that is less",
    doc = "The rates mean nothing before so many calls are in the window." },
  { key = "trip.decide", kind = "function",
    doc = "decide(snapshot) -> true to open; asked after each failure and slow call." },

  { key = "open", kind = "table", doc = "How long it stays open." },
  { key = "open.cooldown_ms", kind = "ms", min = 1, max = DAY_MS, default = 5000,
    rule = "cooldown_ms",
    doc = "The first time." },
  { key = "open.backoff", kind = "factor", min = 1, max = 100, default = 2, rule = "backoff",
    doc = "Each further time in a row, so many times as long as before." },
  { key = "open.max_cooldown_ms", kind = "ms", min = 1, max = DAY_MS, rule = "max_cooldown_ms",
    default_doc = "the longer of cooldown_ms and 60000",
    doc = "But no longer than this, before jitter.  Caps what Retry-After asks for as well." },
  { key = "open.jitter", kind = "share", default = 0.2, rule = "jitter",
    doc = "Lengthens each by up to this share, so that many processes do not probe at once." },

  { key = "half_open", kind = "table", doc = "What it takes to close again." },
  { key = "half_open.probes", kind = "whole", min = 1, max = 31, default = 3, rule = "probes",
    doc = "So many calls are let through to find out." },
  { key = "half_open.successes", kind = "whole", min = 1, max = 31, default = 2, rule = "successes",
    default_doc = "2, or probes if that is less",
    doc = "So many of them must succeed.  Once that is out of reach it opens again." },
  { key = "half_open.concurrent", kind = "whole", min = 1, max = 15, default = 1,
    rule = "concurrent",
    doc = "So many of them may be under way at once." },
  { key = "half_open.lease_ms", kind = "ms", min = 1, max = HOUR_MS, rule = "lease_ms",
    default_doc = "twice timeout_ms, or 30000 without one",
    doc = "A probe that has not come back by then is lost, and it opens again." },
  { key = "half_open.ramp_ms", kind = "ms", min = 0, max = HOUR_MS, rule = "ramp_ms",
    default_doc = "0: all at once",
    doc = "Once closed, the share of calls let in grows over this time, from next to none to "
      .. "all." },
  { key = "half_open.decide", kind = "function",
    doc = 'decide(round) -> "close", "open" or nil, after each probe: in place of successes.' },

  { key = "timeout_ms", kind = "ms", min = 1, max = HOUR_MS - 1, rule = "timeout_ms",
    default_doc = "none", doc = "A call that takes longer is given up, and has failed." },
  { key = "deadline_ms", kind = "ms", min = 1, max = HOUR_MS, default_doc = "none",
    doc = "All of it, with retries, waits and fallbacks, takes no longer." },

  { key = "retry", kind = "table", doc = "Trying again what has failed." },
  { key = "retry.attempts", kind = "whole", min = 1, max = 10, default = 3,
    doc = "How often a call is made at most, the first time included." },
  { key = "retry.base_ms", kind = "ms", min = 1, max = HOUR_MS, default = 50,
    doc = "Before the first retry it waits up to so long, at random; before each further one, up "
      .. "to twice as long." },
  { key = "retry.max_ms", kind = "ms", min = 1, max = HOUR_MS, default = 1000,
    doc = "But no longer than this.  An answer whose Retry-After is longer is not retried." },
  { key = "retry.budget", kind = "share", default = 0.1,
    doc = "Retries are at most such a share of the calls of the guard." },
  { key = "retry.budget_per_s", kind = "whole", min = 0, max = 1000000, default = 1,
    doc = "And so many a second besides, for a guard with few calls." },
  { key = "retry.on", kind = "function", default_doc = "idempotent methods, and what was not sent",
    doc = "on(call) -> true: this failed call may be made again." },

  { key = "bulkhead", kind = "table", doc = "How much of the program one dependency may hold." },
  { key = "bulkhead.concurrent", kind = "whole", min = 1, max = 1000000,
    default_doc = "must be given",
    doc = "So many calls at once, per key and process; one more is refused." },
  { key = "bulkhead.wait_ms", kind = "ms", min = 0, max = HOUR_MS, default = 0,
    doc = "After it has waited so long for its turn, where the host can wait." },

  { key = "key", kind = "function", default_doc = "one breaker for all calls",
    doc = "key(call) -> text: each has a breaker of its own; nil: the default one." },
  { key = "max_keys", kind = "whole", min = 1, max = 1000000, default = 256,
    doc = "So many keys have one; the others share the breaker *." },

  { key = "mode", kind = "choice", choices = MODES, default = "auto", rule = "mode",
    doc = '"auto": at work; "forced_closed": off; "shadow": only says what it would do.' },

  { key = "shadow", kind = "text", default_doc = "none",
    doc = "A candidate's file, by this file's directory: judges the same calls, decides nothing." },

  { key = "classify", kind = "classifier", default_doc = "classify.default",
    doc = 'classify(call) -> "success", "failure" or "neutral"; then a reason, retry_after_ms.' },
  { key = "fallback", kind = "stages", default_doc = "none",
    doc = "Who answers when the dependency cannot: the first stage that has an answer." },
  { key = "fallback_on", kind = "causes", choices = schema.causes,
    default = { "refused", "timeout", "failure" },
    doc = "What makes the fallback answer." },

  { key = "on_transition", kind = "function", default_doc = "none",
    doc = "on_transition(event): told of each change of state, after the call." },
}

local TIMEOUT = { key = "timeout_ms", kind = "ms", min = 1, max = HOUR_MS - 1, default_doc = "none",
  doc = "An answer that takes longer is not used." }
local CONCURRENT = { key = "concurrent", kind = "whole", min = 1, max = 100000,
  default_doc = "any number", doc = "So many calls may wait for it at once; one more is declined." }

--- The options of each fallback stage.  A key "value", "name" or "run" is the constructor's
--- argument.
---@type table<string, neap.schema.key[]>
schema.stages = {
  last_good = {
    { key = "max_age_ms", kind = "ms", min = 1, max = 31 * DAY_MS, default = 10 * 60 * 1000,
      doc = "An answer that is older is not used." },
    { key = "revalidate_after_ms", kind = "ms", min = 0, max = 31 * DAY_MS,
      default_doc = "off: every call asks the dependency",
      doc = "An answer is used at once, without waiting for the dependency; if it is older than "
        .. "this, one call in the background asks for the next." },
    { key = "max_entries", kind = "whole", min = 1, max = 1000000, default = 1000,
      doc = "So many answers are kept; the one unused for longest goes first." },
    { key = "max_bytes", kind = "whole", min = 1024, max = 1024 * 1024 * 1024,
      default = 8 * 1024 * 1024,
      doc = "So many bytes of answers are kept." },
    { key = "max_entry_bytes", kind = "whole", min = 1, max = 1024 * 1024 * 1024,
      default = 1024 * 1024,
      doc = "An answer that takes more is not kept, so that one can't crowd out the others." },
    { key = "persist", kind = "file", default_doc = "in memory only",
      doc = "The answers' file NAME.kept in the host's state_dir: they outlive a restart." },
    { key = "key", kind = "function", default_doc = "the call's arguments, or the request",
      doc = "key(call) -> text: calls of one key share an answer; nil: this one is not kept." },
    TIMEOUT,
  },
  default = {
    { key = "value", kind = "any", required = true,
      doc = "The answer, or a function(call) -> answer.  In the sidecar a table { status, headers, "
        .. "body } is an HTTP answer; any other table is sent as JSON." },
    { key = "by", kind = "function", default_doc = "one answer for all calls",
      doc = "by(call) -> key: `value` is then a table of answers by key; without one for the key "
        .. "the stage declines." },
    { key = "keys", kind = "texts", default_doc = "any", doc = "With `by`: the keys there are.  "
      .. "Loading fails if one has no answer in `value`, or an answer has another key." },
    TIMEOUT,
  },
  fail = {
    { key = "status", kind = "whole", min = 400, max = 599, default = 503,
      doc = "The HTTP status in the sidecar." },
    { key = "kind", kind = "text", default_doc = "why the chain was asked",
      doc = "The kind of the error that the caller gets." },
    { key = "retry_after_ms", kind = "ms", min = 1, max = DAY_MS,
      default_doc = "until the breaker lets a call through",
      doc = "When to ask again." },
  },
  guard = {
    { key = "name", kind = "text", required = true,
      doc = "The policy whose guard answers instead." },
    { key = "sent", kind = "boolean", default = false,
      doc = "In the sidecar, true: any request goes there.  false: after a failure only GET, HEAD, "
        .. "OPTIONS, TRACE, PUT and DELETE: another may have been carried out." },
    CONCURRENT, TIMEOUT,
  },
  queue = {
    { key = "name", kind = "file", required = true,
      doc = "The queue's files NAME.queue, .dead and .lock in the host's state_dir." },
    { key = "max_entries", kind = "whole", min = 1, max = 100000, default = 10000,
      doc = "So many calls may be in it; a full queue declines." },
    { key = "max_bytes", kind = "whole", min = 1024, max = 1024 * 1024 * 1024,
      default = 64 * 1024 * 1024, doc = "So many bytes of calls may be in it." },
    { key = "max_age_ms", kind = "ms", min = 1000, max = 31 * DAY_MS, default = DAY_MS,
      doc = "A call that has waited longer is not made any more: it goes to the dead letters." },
    { key = "attempts", kind = "whole", min = 1, max = 100, default = 3,
      doc = "A call that the dependency answers with a fault of the call's own (neutral: a 4xx) so "
        .. "often goes to the dead letters." },
    { key = "sent", kind = "boolean", default = false,
      doc = "true: takes calls, too, that were sent and failed: they may have been carried out.  "
        .. "false: only such as were not: refused, or no connection." },
    CONCURRENT, TIMEOUT,
  },
  ["function"] = {
    { key = "run", kind = "function", required = true,
      doc = "run(call) -> answer, or nil to decline." },
    TIMEOUT,
  },
}

-- ---- Looking up -------------------------------------------------------------------------------

schema.by_key, schema.by_rule = {}, {}
for _, spec in ipairs(schema.keys) do
  schema.by_key[spec.key] = spec
  if spec.rule then schema.by_rule[spec.rule] = spec end
end

--- The names of the keys of a section; "" is the policy itself.
---@param section string
---@return string[]
function schema.names(section)
  local names = {}
  for _, spec in ipairs(schema.keys) do
    local above, name = spec.key:match("^(.*)%.([^.]+)$")
    if (above or "") == section then names[#names + 1] = name or spec.key end
  end
  return names
end

local EXPECTED = {
  whole = "a whole number from %d to %d",
  ms = "a whole number of milliseconds from %d to %d",
  share = "a share from 0 to 1, e.g. 0.2",
  ["positive share"] = "a share over 0, up to 1, e.g. 0.5",
  factor = "a factor from %d to %d, e.g. 2",
  stages = "a list of fallback stages",
  classifier = "a function, or one of classify.*",
  text = "a text that is not empty",
  texts = "a list of texts that are not empty",
  file = "a file's name: letters, digits, _ - . and no . first, up to 64",
  boolean = "true or false",
  any = "any value but nil",
}

--- The range of a key in words: what would be right.
---@param spec neap.schema.key
---@return string
function schema.expected(spec)
  local words = EXPECTED[spec.kind]
  if words then return words:format(spec.min, spec.max) end
  if not spec.choices then return "a " .. spec.kind end
  local choices = '"' .. table.concat(spec.choices, '", "') .. '"'
  return spec.kind == "causes" and "a list of " .. choices or choices
end

return schema
