--- One dependency of two hangs, and nobody needs it much: but each request that waits for it holds
--- a worker, until there is none left for the others.
---
---   shop: 20 workers --> catalogue          fine
---                    --> recommendations    hangs: optional, and asked by three in ten

params.declare {
  remedy     = { type = "boolean", default = true, doc = "a breaker, and a timeout that fits" },
  timeout_ms = { type = "ms", min = 1, default = 5000, doc = "of the call without the remedy" },
}

local recommendations = {
  to = "recommendations", share = 0.3, optional = true, timeout_ms = params.timeout_ms,
}

if params.remedy then
  recommendations.policy = {
    trip       = { consecutive_failures = 5, slow_rate = 0.5, slow_call_ms = 250 },
    open       = { cooldown_ms = 5000 },
    timeout_ms = 400,
    bulkhead   = { concurrent = 8 },
  }
end

return {
  name  = "slow_dependency",
  title = "a dependency that hangs takes all workers with it",
  lesson = "Slow is worse than down. A call that fails at once costs nothing; one that hangs "
    .. "holds a worker until its timeout, and 5 s of timeout at 60 such calls a second are 300 "
    .. "workers: the shop has 80. So it refuses everybody, also those who never needed what "
    .. "hangs. A timeout near what is normal, a breaker that counts slow calls, and a bulkhead "
    .. "that bounds how many may wait keep the rest alive.",
  duration_ms = 60000,
  services = {
    shop = {
      replicas = 4, workers = 20, queue = 40,
      latency  = { kind = "lognormal", median_ms = 5, p99_ms = 30 },
      arrivals = { { kind = "poisson", per_s = 200 } },
      calls    = { { to = "catalogue", timeout_ms = 1000 }, recommendations },
    },
    catalogue = { latency = { kind = "lognormal", median_ms = 10, p99_ms = 60 } },
    recommendations = {
      latency = { kind = "lognormal", median_ms = 40, p99_ms = 200 },
      faults  = { { kind = "outage", how = "hang", from_ms = 15000, for_ms = 30000 } },
    },
  },
  runs = {
    { name = "timeout of 5 s", params = { remedy = false } },
    { name = "breaker", params = { remedy = true } },
  },
}
