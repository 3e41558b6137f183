--- The plain host, for any Lua program; and, on this page, what a host is.
--
-- A host is a table with what a guard can't do by itself.  All of it is optional; this one has
-- nothing, and that is enough:
--
--   now      the clock.  Without: the system's monotonic clock, cheap, in steps of up to 4 ms
--   run      gives a call up at its deadline.  Without: a call that took too long is found out when
--            it ends, and counts as a timeout; until then nothing can stop it.  It can ask
--            guard:deadline() first thing and see to it itself
--   sleep    for waiting between tries.  Without: no waiting
--   spawn    runs something beside the caller.  Without: nothing is
--
-- Others: neap.hosts.uv.

---@class (exact) neap.Host
---@field name string
---@field now? fun(): number|"precise" an instant in ms that never jumps, or the system's clock in
---  steps under 1 ms
---@field run? fun(timeout_ms: integer, f: function, ...: any): boolean, any, any Runs f(...), in a
---  coroutine of its own if need be. True and its first two results; false if it was given up after
---  timeout_ms (whatever it does then is nobody's business any more). Raises what f raises. May
---  yield. Where nothing can be given up, e.g. outside of any coroutine, `true, f(...)` will do.
---@field sleep? fun(ms: number) may yield
---@field spawn? fun(f: function, ...: any)

---@type neap.Host
local plain = { name = "plain" }

return plain
