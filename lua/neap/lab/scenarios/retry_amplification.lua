--- Three layers, each of which tries three times: one request from outside becomes 27 at the
--- bottom, just when that can bear them least.
---
---   gateway --3--> orders --3--> stock --3--> database: 3 x 3 x 3

params.declare {
  remedy   = { type = "boolean", default = true,
    doc = "a breaker, and retries in one layer, on a budget" },
  attempts = { type = "whole", min = 1, max = 10, default = 3, doc = "of each layer" },
}

--- How a layer calls the next: with the remedy only the last one tries again.
local function calls(to)
  local call = { to = to, timeout_ms = 2000 }
  if not params.remedy then
    call.retry = { attempts = params.attempts, wait_ms = 50 }
  elseif to == "database" then
    call.policy = {
      trip  = { failure_rate = 0.5, consecutive_failures = 10 },
      open  = { cooldown_ms = 2000, max_cooldown_ms = 5000 },
      retry = { attempts = params.attempts, base_ms = 50, budget = 0.1 },
    }
  end
  return { call }
end

local function layer(to)
  return {
    replicas = 4, latency = { kind = "lognormal", median_ms = 2, p99_ms = 10 }, calls = calls(to),
  }
end

local gateway = layer "orders"
gateway.arrivals = { { kind = "poisson", per_s = 50 } }

return {
  name  = "retry_amplification",
  title = "three layers try three times each: 27 requests for one",
  lesson = "Retries multiply from layer to layer: three layers with three tries each ask the "
    .. "database 27 times for every request, and only while it is down. It comes back to a load "
    .. "that it never had. Retry in one layer, the one next to what fails, and on a budget: "
    .. "neap's retry.budget lets retries be a tenth of the calls, however much fails, and none "
    .. "crosses an open breaker.",
  duration_ms = 75000,
  services = {
    gateway = gateway,
    orders  = layer "stock",
    stock   = layer "database",
    database = {
      latency = { kind = "exponential", mean_ms = 5 },
      faults  = { { kind = "outage", how = "error", from_ms = 15000, for_ms = 30000 } },
    },
  },
  runs = {
    { name = "retries", params = { remedy = false } },
    { name = "breaker and a budget", params = { remedy = true } },
  },
}
