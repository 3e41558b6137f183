--- A fleet that opens in one moment asks again in one moment, and again, as long as it lasts.
---
---   no jitter     ||||                ||||                              ||||
---   with jitter   | | | |  | ||  |  |   |  | | |    | |   |  | |   | |      |

params.declare {
  replicas = { type = "whole", min = 1, max = 10000, default = 200, doc = "of the fleet" },
  jitter   = { type = "share", default = 0.5, doc = "the policy's open.jitter" },
}

return {
  name  = "probe_storm",
  title = "a fleet without jitter probes all at once",
  lesson = "Breakers that open together probe together: what has just come back, its caches cold, "
    .. "gets a probe of the whole fleet within a moment, and again after the next cooldown. "
    .. "Jitter lengthens each cooldown by a random part, so that probes trickle in. It has a "
    .. "price: it only ever lengthens, so some close later. neap's default is 0.2; a large fleet "
    .. "in front of something small wants more.",
  duration_ms = 50000,
  services = {
    fleet = {
      replicas = params.replicas,
      arrivals = { { kind = "poisson", per_s = params.replicas * 10 } },
      calls = { { to = "database", policy = {
        trip       = { consecutive_failures = 2 },
        open       = { cooldown_ms = 5000, backoff = 2, max_cooldown_ms = 10000,
          jitter = params.jitter },
        timeout_ms = 500,
      } } },
    },
    database = {
      latency = { kind = "exponential", mean_ms = 10 },
      faults  = { { kind = "outage", from_ms = 5000, for_ms = 22000 } },
    },
  },
  runs = {
    { name = "no jitter", params = { jitter = 0 } },
    { name = "jitter 0.5", params = { jitter = 0.5 } },
  },
}
