--- Payments: a hard dependency.  It fails closed: when the provider is in doubt nobody is charged
--- and nobody is told that they were.
---
---   open after    three failures in a row, or one in five of the last fifty payments
---   closed after  three payments that all went through, one at a time
---   meanwhile     an error that says so; no stored answer, ever
---
--- A card that is declined is an answer.  So is 409, a payment that was made before: retrying with
--- the same idempotency key is how a caller finds out about a timeout.
params.declare {
  timeout_ms  = { type = "ms", min = 1, max = 25000, default = 10000, doc = "of one payment" },
  cooldown_ms = { type = "ms", min = 1, max = 120000, default = 10000, doc = "open at first" },
}

return {
  name = "payments",

  window    = { kind = "count", calls = 50 },
  trip      = { consecutive_failures = 3, failure_rate = 0.2, minimum_calls = 20 },
  open = {
    cooldown_ms = params.cooldown_ms, backoff = 2, max_cooldown_ms = 120000, jitter = 0.2,
  },
  half_open = { probes = 3, successes = 3, concurrent = 1, lease_ms = 30000 },
  timeout_ms = params.timeout_ms,

  classify = function(call)
    if call.ended_by ~= "answer" then return classify.transport(call) end
    if call.status == 402 then return "success", "declined" end
    if call.status == 409 then return "success", "made before" end
    return classify.http(call)
  end,

  -- The provider's own errors go to the caller as they are.  Whoever adds last_good here shows
  -- yesterday's receipt for today's purchase.
  fallback_on = { "refused" },
  fallback = {
    fallback.fail { status = 503, kind = "payments_unavailable" },
  },
}
