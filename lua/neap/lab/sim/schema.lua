--- Every key of a scenario file, once, as neap.schema has those of a policy: validation, error
--- texts and docs/simulate.md are made from here.

local random = require "neap.lab.sim.random"

local schema = {}

local HOUR_MS = 60 * 60 * 1000
local DAY_MS = 24 * HOUR_MS

local function ms(key, doc, more)
  local spec = { key = key, kind = "ms", min = 0, max = 31 * DAY_MS, doc = doc }
  for name, value in pairs(more or {}) do spec[name] = value end
  return spec
end

local function positive(key, doc, more)
  local spec = ms(key, doc, more)
  spec.kind, spec.min = "positive", nil
  return spec
end

--- By the kind of table; in the order in which people read them.
---@type table<string, neap.schema.key[]>
schema.tables = {
  scenario = {
    { key = "name", kind = "text", required = true, doc = "The file's name without .lua." },
    { key = "title", kind = "text", default_doc = "the name", doc = "What happens, in a line." },
    { key = "lesson", kind = "text", default_doc = "none",
      doc = "What is to be learned: a paragraph of the report." },
    ms("duration_ms", "How long it is watched.", { min = 1000, required = true }),
    { key = "services", kind = "table", required = true,
      doc = "Who is called and who calls, by name." },
    { key = "runs", kind = "list", default_doc = "one, with the params' defaults",
      doc = "The same again with other params, to be compared." },
  },

  run = {
    { key = "name", kind = "text", required = true, doc = "What is different, in a few words." },
    { key = "params", kind = "table", default_doc = "the defaults",
      doc = "Values of what params.declare has declared." },
  },

  service = {
    { key = "replicas", kind = "whole", min = 1, max = 10000, default = 1,
      doc = "So many processes: each has workers, a queue and breakers of its own; who calls takes "
        .. "any of them." },
    { key = "workers", kind = "whole", min = 1, max = 1000000, default_doc = "any number",
      doc = "So many requests a replica serves at once: its threads, its pool. One that waits for "
        .. "another service holds its worker." },
    { key = "queue", kind = "whole", min = 0, max = 1000000, default = 0,
      doc = "So many requests may wait for a worker; one more is answered 503 at once." },
    { key = "latency", kind = "distribution", default_doc = "0",
      doc = "How long its own work takes: milliseconds, or a distribution." },
    { key = "error_rate", kind = "share", default = 0,
      doc = "Such a share of what it serves ends as 500, without any fault." },
    { key = "arrivals", kind = "list", default_doc = "none: only other services call it",
      doc = "Requests from outside." },
    { key = "calls", kind = "list", default_doc = "none",
      doc = "What it asks of others for each request, one after another." },
    { key = "faults", kind = "list", default_doc = "none", doc = "What goes wrong with it, when." },
  },

  call = {
    { key = "to", kind = "text", required = true, doc = "The service that is called." },
    { key = "share", kind = "share", default = 1,
      doc = "Such a share of the requests, at random, needs it." },
    ms("timeout_ms", "It is given up then, as failed; the other side goes on. The policy's "
      .. "timeout_ms, if that is sooner.", { min = 1, default_doc = "none" }),
    { key = "connections", kind = "whole", min = 1, max = 1000000, default_doc = "any number",
      doc = "So many a replica has under way; one more waits for a connection, within its "
        .. "timeout." },
    { key = "optional", kind = "boolean", default = false,
      doc = "true: a request goes on without it, as one that has a fallback." },
    { key = "retry", kind = "table", default_doc = "none",
      doc = "The caller tries again by itself, whatever the policy says: around the breaker." },
    { key = "policy", kind = "policy", default_doc = "none: no breaker",
      doc = "A policy: a file, by this file's directory, or a table of a policy's keys, without "
        .. "functions." },
    { key = "breakers", kind = "choice", choices = { "each", "shared" }, default = "each",
      doc = "Each replica has one of its own, or all share one, as processes with a shared panel "
        .. "do." },
  },

  retry = {
    { key = "attempts", kind = "whole", min = 1, max = 20, default = 3,
      doc = "How often at most, the first time included." },
    ms("wait_ms", "Before each retry.", { default = 0 }),
    { key = "backoff", kind = "factor", min = 1, max = 100, default = 1,
      doc = "Each further wait is so many times as long." },
    { key = "jitter", kind = "boolean", default = false,
      doc = "true: it waits anything from nothing up to that." },
  },
}

--- Of tables that have a kind: the keys by kind.
---@type table<string, table<string, neap.schema.key[]>>
schema.kinds = {
  latency = {
    constant = { positive("ms", "Always so long.", { required = true }) },
    exponential = { positive("mean_ms", "The mean.", { required = true }) },
    lognormal = {
      positive("median_ms", "Half take longer.", { required = true }),
      positive("p99_ms", "One in a hundred takes longer.", { required = true }),
    },
    percentiles = {},
  },

  arrivals = {
    poisson = {
      { key = "per_s", kind = "positive", required = true, max = 1000000,
        doc = "So many a second, independent of one another." },
    },
    even = {
      { key = "per_s", kind = "positive", required = true, max = 1000000,
        doc = "So many a second, at equal distances." },
    },
    bursts = {
      { key = "size", kind = "whole", min = 1, max = 1000000, required = true,
        doc = "So many at once." },
      positive("every_ms", "From one burst to the next.", { required = true }),
    },
    users = {
      { key = "count", kind = "whole", min = 1, max = 1000000, required = true,
        doc = "So many, each of whom waits for the answer before asking again." },
      positive("think_ms", "And then so long, at random, on average.", { required = true }),
    },
  },

  faults = {
    outage = {
      { key = "how", kind = "choice", choices = { "refuse", "error", "hang" }, default = "refuse",
        doc = "No connection; 503 at once; or no answer until it is over." },
    },
    brownout = {
      { key = "slower", kind = "factor", min = 1, max = 100000, default = 1,
        doc = "Its work takes so many times as long." },
      { key = "error_rate", kind = "share", default_doc = "as ever",
        doc = "Such a share of what it serves ends as 500." },
      { key = "workers", kind = "whole", min = 1, max = 1000000, default_doc = "as ever",
        doc = "So many requests a replica serves at once meanwhile." },
    },
    restart = {
      ms("cold_ms", "After it is back, its caches fill for so long.", { default = 0 }),
      { key = "cold_slower", kind = "factor", min = 1, max = 100000, default = 1,
        doc = "Its work takes so many times as long at first, less and less until then." },
    },
  },
}

for _, one in ipairs(random.percentiles) do
  local percent = ("%.14g"):format(one.share * 100)
  table.insert(schema.kinds.latency.percentiles, positive(one.key,
    percent .. " % take no longer.", { default_doc = "none" }))
end

for _, keys in pairs(schema.kinds.arrivals) do
  keys[#keys + 1] = ms("from_ms", "None comes before.", { default = 0 })
  keys[#keys + 1] = ms("to_ms", "None comes from then on.", { default_doc = "the end" })
end

local WHEN = {
  ms("from_ms", "When it begins. A restart: when what it was serving is lost.",
    { required = true }),
  ms("for_ms", "How long it lasts. A restart: until it takes requests again.",
    { min = 1, required = true }),
  ms("every_ms", "It comes back, so long after it began.",
    { min = 1, default_doc = "it does not" }),
  { key = "share", kind = "share", default = 1,
    doc = "Such a share of the replicas has it, the first of them." },
}
for _, keys in pairs(schema.kinds.faults) do
  for i, spec in ipairs(WHEN) do table.insert(keys, i, spec) end
end

--- What each kind of distribution, arrivals or fault is.
schema.docs = {
  latency = {
    constant = "always the same", exponential = "memoryless: many short, few long",
    lognormal = "as most services: a hump and a long tail",
    percentiles = "as measured: straight between the percentiles given, two at least",
  },
  arrivals = {
    poisson = "many independent clients", even = "like clockwork", bursts = "all at once",
    users = "a closed loop: they ask less when answers are slow",
  },
  faults = {
    outage = "it serves nothing", brownout = "it serves badly",
    restart = "what it serves is lost; it is gone for a while, then cold",
  },
}

return schema
