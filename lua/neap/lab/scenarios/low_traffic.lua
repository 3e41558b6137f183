--- A call every ten seconds, one in ten of which fails: two failures in a row are chance, and a
--- rate of two calls is none.

params.declare {
  remedy = { type = "boolean", default = true, doc = "a run of failures in place of a rate" },
}

local trip = params.remedy and { consecutive_failures = 5 }
  or { failure_rate = 0.5, minimum_calls = 2 }

return {
  name  = "low_traffic",
  title = "a rate of two calls opens a breaker on nothing",
  lesson = "A failure rate is a statement about many calls. With a call every ten seconds a "
    .. "window of a minute holds six; if two are enough to judge by, the odd failure opens the "
    .. "breaker many times a day with nothing wrong. Five failures in a row, however far apart, "
    .. "hardly ever come by chance. The price: a real outage is noticed after five calls, so "
    .. "after some fifty seconds, not after twenty.",
  duration_ms = 6 * 3600000,
  services = {
    caller = {
      replicas = 20, arrivals = { { kind = "poisson", per_s = 2 } },
      calls = { { to = "dependency", timeout_ms = 1000, policy = {
        window = { length_ms = 60000 }, trip = trip, open = { cooldown_ms = 60000 },
      } } },
    },
    dependency = {
      latency = { kind = "exponential", mean_ms = 50 }, error_rate = 0.1,
      faults  = { { kind = "outage", from_ms = 5 * 3600000, for_ms = 1800000 } },
    },
  },
  runs = {
    { name = "rate of 2 calls", params = { remedy = false } },
    { name = "5 in a row", params = { remedy = true } },
  },
}
