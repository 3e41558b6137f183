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
--   turn     for waiting until somebody says so.  Without: a full bulkhead refuses at once
--   spawn    runs something beside the caller.  Without: nothing is
--   later    runs something after a while.  Without: that an operator's mode is over is told when
--            somebody asks
--   outlives what spawn runs goes on when the caller has ended.  Without: nothing is refreshed
--            behind a caller's back
--   sync     puts a file on the disk elsewhere, while the program goes on; wait waits for such a
--            thing.  Without: the program waits for the disk
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
---@field turn? fun(ms: number, ready: fun(wake: fun(): boolean)): boolean calls ready(wake) and waits
---  until wake is called, but not longer than ms: whether it was. wake answers whether anybody still
---  waits, and leaves it to the host to run him. May yield; false at once where nothing can wait
---@field spawn? fun(f: function, ...: any)
---@field later? fun(ms: number, f: fun()) does not keep the program running
---@field outlives? boolean
---@field sync? fun(descriptor: integer, done: fun(ok: boolean|nil, message?: string)) does not wait
---@field wait? fun(start: fun(done: function)): any, any calls start(done) and answers what done is
---  given; may yield. Where nothing can wait: false, and start is not called
---@field waits_later? boolean queued calls are answered when info.durable says so
---@field question? fun(call: table): table|nil, string|nil what of a call is put into a queue, or a
---  fault; without: its arguments
---@field replay? fun(guard: neap.Guard, entry: neap.Queued, done: function) makes queued calls again
---@field pack? fun(value: userdata): string|nil of answers that are no Lua data
---@field unpack? fun(bytes: string): userdata|nil

---@type neap.Host
local plain = { name = "plain" }

return plain
