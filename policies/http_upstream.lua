--- An HTTP service with steady traffic: opens when half of its answers in the last ten seconds
--- were failures, or half were slow, once there are twenty calls to judge by.  Ten failures in a
--- row open it too: one caller who waits for each timeout never makes twenty calls in ten seconds.
---
---   failures   5xx, 429, timeouts, no connection
---   neutral    other 4xx: the caller's mistake, not the service's
---
--- 429 and 503 may say Retry-After: it is then left alone for at least that long.
params.declare {
  timeout_ms   = { type = "ms", min = 1, max = 600000, default = 3000, doc = "of one call" },
  slow_call_ms = { type = "ms", min = 1, max = 600000, default = 1000, doc = "longer is slow" },
  cooldown_ms  = { type = "ms", min = 1, max = 60000, default = 5000, doc = "open at first" },
}

return {
  name = "http_upstream",

  window = { kind = "time", length_ms = 10000 },
  trip = {
    failure_rate  = 0.5,
    slow_rate     = 0.5,
    slow_call_ms  = params.slow_call_ms,
    minimum_calls = 20,
    consecutive_failures = 10,
  },
  open = {
    cooldown_ms = params.cooldown_ms, backoff = 2, max_cooldown_ms = 60000, jitter = 0.2,
  },
  half_open = { probes = 5, successes = 4, concurrent = 2 },
  timeout_ms = params.timeout_ms,

  classify = classify.http,

  -- Without a last good answer the caller gets the service's own error or, when it was not asked,
  -- 503 with the time to come back.
  fallback = {
    fallback.last_good { max_age_ms = 60 * 1000 },
  },
}
