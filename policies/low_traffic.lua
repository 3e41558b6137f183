--- A dependency that is called a few times an hour, such as a nightly export or an admin's button.
--- A share of so few calls means nothing, and a window would be empty before it counts: three
--- failures in a row open it, however far apart they were.
---
---   ok  ok  bad  ok  bad  bad  bad     open
---                     1    2    3
---
--- One good probe closes it: with such traffic a second one may be an hour away.
params.declare {
  timeout_ms = { type = "ms", min = 1, max = 600000, default = 10000, doc = "of one call" },
}

return {
  name = "low_traffic",

  window    = { kind = "count", calls = 10 },
  trip      = { consecutive_failures = 3 },
  open      = { cooldown_ms = 60000, backoff = 2, max_cooldown_ms = 15 * 60 * 1000, jitter = 0.1 },
  half_open = { probes = 1, successes = 1 },
  timeout_ms = params.timeout_ms,
}
