--- Events to somebody else's service: orders shipped, mails to send.  None may be lost, none need
--- be delivered this second: while the receiver is down they wait in a durable queue.
---
---   caller ---- POST ----> receiver
---      |          x  five failures in a row, or half of the last twenty
---      |          +--> queue, on disk: 202 and an id --- the receiver is back ---> receiver
---      |                  | full, or the event may have arrived
---      +<-- error --------+
---
--- The receiver must know an event by its Idempotency-Key: one may come twice.
params.declare {
  max_entries = { type = "whole", min = 1, max = 100000, default = 10000, doc = "that wait" },
  max_age_ms  = { type = "ms", min = 1000, max = 2678400000, default = 24 * 3600 * 1000,
                  doc = "older ones are dead letters" },
}

return {
  name = "webhooks",

  window    = { kind = "count", calls = 20 },
  trip      = { consecutive_failures = 5, failure_rate = 0.5, minimum_calls = 10 },
  open      = { cooldown_ms = 5000, backoff = 2, max_cooldown_ms = 300000, jitter = 0.2 },
  half_open = { probes = 3, successes = 3, concurrent = 1 },
  timeout_ms = 5000,

  classify = function(call)
    if call.status == 409 then return "success", "delivered before" end
    if call.status == 401 or call.status == 403 then return "failure", "our credentials" end
    return classify.http(call)
  end,

  -- Only what was never sent.  An event that failed may have arrived: its sender hears of that.
  fallback = {
    fallback.queue("webhooks", {
      max_entries = params.max_entries,
      max_age_ms  = params.max_age_ms,
      concurrent = 500, timeout_ms = 2000,
    }),
  },
}
