--- OFREP, the protocol by which OpenFeature clients ask a flag provider: flagd, GO Feature Flag, ….
--- Five failures within two seconds stop the calls, or five in a row.
---
---   provider ---- answers ------------------------------------> application
---      x  five failures                                           ^   ^
---      +--> the flag's last value for the same context -----------+   |
---      +--> never asked, or must not be stale: its reviewed default --+
---
--- Applications have an answer within 50 ms, and an outage of the flags is none of theirs: this
--- policy fails open.
local defaults = params.defaults or {}       -- what each flag is when nobody knows: reviewed
local never_stale = params.never_stale or {} -- kill switches: rather the default than an old value

local ALL = "/ofrep/v1/evaluate/flags"

local function flag_of(call)
  return call.request.target:match("^" .. ALL .. "/([^/?]+)$")
end

local function answer_of(flag)
  return { key = flag, value = defaults[flag], reason = "DEFAULT", variant = "neap-default" }
end

return {
  name = "ofrep",

  window     = { kind = "time", length_ms = 2000 },
  trip       = { failures = 5, consecutive_failures = 5 },
  open       = { cooldown_ms = 2000, backoff = 2, max_cooldown_ms = 30000, jitter = 0.2 },
  half_open  = { probes = 3, successes = 2, concurrent = 1, lease_ms = 1000 },
  timeout_ms = params.timeout_ms or 40,

  classify = function(call)
    if call.status == 401 or call.status == 403 then
      warn "the provider refuses our credentials: is the token wrong, or has it expired?"
      return "neutral", "credentials"
    end
    return classify.ofrep(call)
  end,

  fallback = {
    fallback.last_good {
      max_age_ms = 10 * 60 * 1000,
      key = function(call)
        local flag = flag_of(call)
        if call.request.method ~= "POST" or never_stale[flag] then return nil end
        local who = call.request.headers.authorization or ""
        return digest(call.request.target .. "\n" .. who .. "\n" .. (call.request.body or ""))
      end,
    },
    fallback.call(function(call)
      local flag = flag_of(call)
      if flag then return defaults[flag] ~= nil and answer_of(flag) or nil end
      if call.request.target ~= ALL then return nil end
      local flags = {}
      for name in pairs(defaults) do flags[#flags + 1] = answer_of(name) end
      return #flags > 0 and { flags = flags } or nil
    end),
  },
}
