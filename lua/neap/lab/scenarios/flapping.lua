--- A dependency that fails two calls in three: one good probe closes the breaker, the next calls
--- open it again, as long as that goes on.

params.declare {
  remedy = { type = "boolean", default = true, doc = "backoff, three good probes, and a ramp" },
}

local policy = params.remedy and {
  trip      = { failure_rate = 0.5, minimum_calls = 10 },
  open      = { cooldown_ms = 1000, backoff = 2, max_cooldown_ms = 15000 },
  half_open = { probes = 3, successes = 3, ramp_ms = 5000 },
} or {
  trip      = { failure_rate = 0.5, minimum_calls = 10 },
  open      = { cooldown_ms = 1000, backoff = 1 },
  half_open = { probes = 1, successes = 1 },
}

return {
  name  = "flapping",
  title = "a dependency that fails now and then, and a breaker that believes it each time",
  lesson = "One good answer proves little. A breaker that closes after a single probe, and "
    .. "forgets that it was open a moment ago, follows every twitch of a dependency that fails "
    .. "two calls in three: it opens again and again, and each time lets the failures through "
    .. "that it takes to notice. neap counts an opening soon after closing as flapping and goes "
    .. "on with its backoff; more probes and a ramp make closing mean something. The price is in "
    .. "the same table: some of the calls refused would have been answered, and it closes later.",
  duration_ms = 300000,
  services = {
    caller = {
      replicas = 5, arrivals = { { kind = "poisson", per_s = 100 } },
      calls = { { to = "dependency", timeout_ms = 500, policy = policy } },
    },
    dependency = {
      latency = { kind = "exponential", mean_ms = 10 },
      faults  = { { kind = "brownout", error_rate = 0.67, from_ms = 30000, for_ms = 180000 } },
    },
  },
  runs = {
    { name = "one probe", params = { remedy = false } },
    { name = "backoff and ramp", params = { remedy = true } },
  },
}
