--- A dependency that does not fail but drags: search, reports, recommendations.  It opens when six
--- in ten calls of the last half minute took longer than 800 ms, long before they time out and
--- before all our threads wait for it.
---
---   0 ms ........ 800 ms ................... 5000 ms
---      fine              slow: counts              timeout: failed
---
--- A slow answer is still an answer and is served; the breaker only asks whether the next call is
--- worth its wait.  Slow probes fail too: it closes when the dependency is quick again.
---
--- One caller who waits for each timeout makes but six calls in half a minute: six failures in a
--- row open it, too.
params.declare {
  timeout_ms   = { type = "ms", min = 1, max = 600000, default = 5000, doc = "of one call" },
  slow_call_ms = { type = "ms", min = 1, max = 600000, default = 800, doc = "longer is slow" },
  cooldown_ms  = { type = "ms", min = 1, max = 60000, default = 10000, doc = "open at first" },
  max_age_ms   = { type = "ms", min = 1, max = 86400000, default = 300000, doc = "of old answers" },
}

return {
  name = "slow_dependency",

  window = { kind = "time", length_ms = 30000 },
  trip = {
    slow_rate     = 0.6,
    slow_call_ms  = params.slow_call_ms,
    failure_rate  = 0.5,
    minimum_calls = 10,
    consecutive_failures = 6,
  },
  open = {
    cooldown_ms = params.cooldown_ms, backoff = 1.5, max_cooldown_ms = 60000, jitter = 0.3,
  },
  half_open = { probes = 4, successes = 3, concurrent = 1 },
  timeout_ms = params.timeout_ms,

  fallback = {
    fallback.last_good { max_age_ms = params.max_age_ms },
  },
}
