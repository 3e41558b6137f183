--- Feature flags: five failures in two seconds stop the calls, or six in a row: a provider that
--- hangs fails one caller but four times in two seconds.  The last good answer, then a reviewed
--- default, serves instead.
---
---   provider ---- answers ---------------------------------------> application
---      x  five failures in 2 s, or six in a row                       ^   ^
---      +-----> the flag's last answer, up to 10 minutes old ----------+   |
---      +-----> never asked before: the default below ---------------------+
---
--- An outage of the flags must not become one of the application: this policy fails open.
return {
  name = "flag_provider",

  window    = { kind = "time", length_ms = 2000 },
  trip      = { failures = 5, consecutive_failures = 6 },
  open      = { cooldown_ms = 5000, backoff = 2, max_cooldown_ms = 60000, jitter = 0.2 },
  half_open = { probes = 3, successes = 2, concurrent = 1, lease_ms = 1000 },
  timeout_ms = 500,

  classify = function(call)
    if call.code == "FLAG_NOT_FOUND" then return "neutral", "a bug in our call, not an outage" end
    return classify.ofrep(call)
  end,

  fallback = {
    fallback.last_good { max_age_ms = 10 * 60 * 1000 },

    -- Off is safe for every flag we have.  A deployment that knows better sets params.default.
    fallback.default(params.default or {
      status = 200,
      headers = { ["Content-Type"] = "application/json" },
      body = '{"value":false,"variant":"off","reason":"DEFAULT"}',
    }),
  },
}
