--- Feature flags: five failures in two seconds stop the calls; the last good answer,
--- then a reviewed default, serves instead.
---
---   flag provider ---- answers ----> the application
---        |  5 failures in 2 s
---        +---> last good answer, at most 10 minutes old ---> the default below
---
--- A flag must never take the application down with its provider: this policy fails open.
return {
  name = "flag_provider",

  window    = { kind = "time", length_ms = 2000 },
  trip      = { failures = 5 },
  open      = { cooldown_ms = 5000, backoff = 2, max_cooldown_ms = 60000, jitter = 0.2 },
  half_open = { probes = 3, successes = 2, concurrent = 1, lease_ms = 1000 },
  timeout_ms = 500,

  -- A flag that does not exist, or a context that makes no sense, is a bug in our call and says
  -- nothing about the provider: OFREP's error codes tell it from an outage.
  classify = function(call)
    return classify.ofrep(call)
  end,

  fallback = {
    fallback.last_good { max_age_ms = 10 * 60 * 1000 },

    -- Reviewed: off is safe for every flag that we have.  A deployment may say otherwise.
    fallback.default(params.default or {
      status = 200,
      headers = { ["Content-Type"] = "application/json" },
      body = '{"value":false,"variant":"off","reason":"DEFAULT"}',
    }),
  },
}
