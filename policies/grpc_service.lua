--- A gRPC service, judged by its status codes: opens when four in ten of the calls of the last
--- ten seconds failed, once there are ten.
---
---   failures   UNAVAILABLE  DEADLINE_EXCEEDED  INTERNAL  UNKNOWN  DATA_LOSS  RESOURCE_EXHAUSTED
---   neutral    what the caller asked for: NOT_FOUND, INVALID_ARGUMENT, CANCELLED and the like
---
--- Where NOT_FOUND means that the service lost its data, say so before `return`:
---   classify.grpc.code.NOT_FOUND = "failure"
params.declare {
  timeout_ms = { type = "ms", min = 1, max = 600000, default = 1000, doc = "of one call" },
}

return {
  name = "grpc_service",

  window    = { kind = "time", length_ms = 10000 },
  trip      = { failure_rate = 0.4, minimum_calls = 10 },
  open      = { cooldown_ms = 3000, backoff = 2, max_cooldown_ms = 30000, jitter = 0.2 },
  half_open = { probes = 5, successes = 4, concurrent = 2 },
  timeout_ms = params.timeout_ms,

  classify = classify.grpc,

  -- A call that was not made ends as one that could not be: callers know UNAVAILABLE.
  fallback_on = { "refused" },
  fallback = {
    fallback.fail { status = 503, kind = "UNAVAILABLE" },
  },
}
