--- OFREP, the protocol by which OpenFeature clients ask a flag provider: flagd, GO Feature Flag, ….
--- Five failures within two seconds stop the calls, or five in a row.
---
---   provider ---- answers ------------------------------------> application
---      x  five failures                                           ^   ^
---      +--> the flag's last value for the same context -----------+   |
---      +--> never asked, or must not be stale: its reviewed default --+
---
--- Applications have an answer within 50 ms, and an outage of the flags is none of theirs: this
--- policy fails open.  Half of the 50 ms is the provider's, which needs 1 to 5 when it is well; the
--- other half is the application's, which has to send and read what may be many calls at once.
params.declare {
  timeout_ms  = { type = "ms", min = 1, max = 10000, default = 25, doc = "of one evaluation" },
  defaults    = { type = "table", default = {}, doc = "each flag's value when nobody knows" },
  never_stale = { type = "table", default = {}, doc = "kill switches: { flag = true }" },
  flags       = { type = "table", doc = "all flags; one without a default fails the load" },
}

local ALL = "/ofrep/v1/evaluate/flags"

--- The flag that a call is about, as it is written where flags are declared; nil: all of them.
local function flag_of(call)
  local flag = call.request.target:match(ALL .. "/([^?]+)")
  return flag and (flag:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

local defaults, all = {}, { flags = {} }
for flag, value in pairs(params.defaults) do
  defaults[flag] = { key = flag, value = value, reason = "DEFAULT", variant = "neap-default" }
  all.flags[#all.flags + 1] = defaults[flag]
end

local has_kill_switch = false
for _, is_one in pairs(params.never_stale) do has_kill_switch = has_kill_switch or is_one end

return {
  name = "ofrep",

  window     = { kind = "time", length_ms = 2000 },
  trip       = { failures = 5, consecutive_failures = 5 },
  open       = { cooldown_ms = 2000, backoff = 2, max_cooldown_ms = 30000, jitter = 0.2 },
  half_open  = { probes = 3, successes = 2, concurrent = 1, lease_ms = 1000 },
  timeout_ms = params.timeout_ms,

  classify = function(call)
    if call.status == 401 or call.status == 403 then
      warn "the provider refuses our credentials: is the token wrong, or has it expired?"
      return "neutral", "credentials"
    end
    return classify.ofrep(call)
  end,

  fallback = {
    fallback.last_good {
      max_age_ms  = 10 * 60 * 1000,
      max_entries = 10000, -- of a flag for a context: 20 flags for 500 users
      persist     = "ofrep",
      key = function(call)
        local request, flag = call.request, flag_of(call)
        if request.method ~= "POST" then return nil end
        if flag and params.never_stale[flag] then return nil end
        if not flag and has_kill_switch then return nil end -- all at once: it is among them
        local who = request.headers.authorization or ""
        return digest(request.target .. "\n" .. who .. "\n" .. (request.body or ""))
      end,
    },
    fallback.default(defaults, { by = flag_of, keys = params.flags }),
    fallback.call(function(call)
      local is_about_all = call.request.target:find(ALL, 1, true) and not flag_of(call)
      if is_about_all and #all.flags > 0 then return all end
    end),
  },
}
