--- Chance, reproducible by a seed: streams of numbers, and samplers of the distributions that a
--- scenario names.
--
-- Each use has a stream of its own (arrivals, latencies …), so that two policies are tried on the
-- same arrivals.

local random = {}

local log, exp, cos, pi, sqrt = math.log, math.exp, math.cos, math.pi, math.sqrt

--- A stream of numbers from 0 to 1, 1 excluded: xorshift64, begun by splitmix64.
---@param seed integer
---@param name string
---@return fun(): number
function random.stream(seed, name)
  local x = seed
  for i = 1, #name do x = (x ~ name:byte(i)) * 0x100000001B3 end
  x = x + 0x9E3779B97F4A7C15
  x = (x ~ (x >> 30)) * 0xBF58476D1CE4E5B9
  x = (x ~ (x >> 27)) * 0x94D049BB133111EB
  x = x ~ (x >> 31)
  if x == 0 then x = 1 end
  return function()
    x = x ~ (x << 13)
    x = x ~ (x >> 7)
    x = x ~ (x << 17)
    return (x >> 11) * (1.0 / 9007199254740992.0)
  end
end

local Z99 = 2.3263478740408408 -- of the normal distribution

local samplers = {}

function samplers.constant(spec)
  local ms = spec.ms
  return function() return ms end
end

function samplers.exponential(spec, uniform)
  local mean = spec.mean_ms
  return function() return -mean * log(1 - uniform()) end
end

function samplers.lognormal(spec, uniform)
  local mu = log(spec.median_ms)
  local sigma = (log(spec.p99_ms) - mu) / Z99
  return function()
    return exp(mu + sigma * sqrt(-2 * log(1 - uniform())) * cos(2 * pi * uniform()))
  end
end

--- Straight between the percentiles that are given; the ends are the first and the last of them.
function samplers.percentiles(spec, uniform)
  local shares, values = {}, {}
  for _, one in ipairs(random.percentiles) do
    if spec[one.key] then
      shares[#shares + 1], values[#values + 1] = one.share, spec[one.key]
    end
  end
  local last = #shares
  return function()
    local u, i = uniform(), 1
    if u <= shares[1] then return values[1] end
    if u >= shares[last] then return values[last] end
    while shares[i + 1] < u do i = i + 1 end
    local part = (u - shares[i]) / (shares[i + 1] - shares[i])
    return values[i] + part * (values[i + 1] - values[i])
  end
end

--- The keys of a percentile table, in order.
random.percentiles = {
  { key = "p0_ms", share = 0 }, { key = "p10_ms", share = 0.1 }, { key = "p25_ms", share = 0.25 },
  { key = "p50_ms", share = 0.5 }, { key = "p75_ms", share = 0.75 },
  { key = "p90_ms", share = 0.9 }, { key = "p95_ms", share = 0.95 },
  { key = "p99_ms", share = 0.99 },
  { key = "p999_ms", share = 0.999 }, { key = "p100_ms", share = 1 },
}

--- A function that answers times as a scenario's distribution has them.
---@param spec table { kind = …, … }, checked
---@param uniform fun(): number
---@return fun(): number ms
function random.sampler(spec, uniform) return samplers[spec.kind](spec, uniform) end

return random
