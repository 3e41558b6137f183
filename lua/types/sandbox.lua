---@meta neap.core
--- The part of the C module that policies run in: see lua/src/sandbox.h.  neap.sandbox is made of
--- it; programs hardly need it themselves, but for harden().

-- luacheck: ignore 21. 24.

local core = {}

--- A coroutine that nobody gets, and the budget of one decision at a time.
---@class neap.core.Box

---@alias neap.core.FaultKind
---| "error"     # it raised; the message is what it raised, if that is a text
---| "steps"     # an overrun, as the next two
---| "bytes"
---| "time"
---| "yield"     # it yielded
---| "memory"    # there was none
---| "condemned" # the policy hoards memory: the box runs no more
---| "busy"      # the box is running already

---@param steps integer instructions, about: it is looked at every 200
---@param bytes integer that may be asked for, freed again or not
---@param ms integer of processor time
---@return neap.core.Box
function core.box(steps, bytes, ms) end

--- Another budget, from the next run on.
---@param box neap.core.Box
---@param steps integer
---@param bytes integer
---@param ms integer
function core.budget(box, steps, bytes, ms) end

--- Runs a function in the box; raises only for wrong arguments.
---@param box neap.core.Box
---@param f function on LuaJIT one that is interpreted: jit.off(f, true)
---@param ... any at most 20
---@return boolean ok
---@return any result up to four; or the message of a fault
---@return any|neap.core.FaultKind kind
function core.run(box, f, ...) end

--- A function that answers as f does in the box, if that is "success" or "neutral" and perhaps a
--- reason; all else is for `otherwise` to say.
---@param box neap.core.Box
---@param f function|neap.Classifier
---@param otherwise fun(call: table, ok: boolean, ...: any): ... the call, and what run would answer
---@return fun(call: table): ...
function core.classifier(box, f, otherwise) end

---@class (exact) neap.core.Library
---@field string table
---@field table table
---@field digest fun(text: string): string 64 hexadecimal digits, the text's SHA-256; charges a step
---  for two bytes
---@field pcall function
---@field setmetatable function
---@field getmetatable function
---@field rawset function

--- Libraries for one policy generation, made anew at each call.
---@return neap.core.Library
function core.library() end

--- Gives all strings of this Lua state methods that stay within a policy's budget.  For programs
--- whose Lua runs policies and nothing else: it cannot be undone.
function core.harden() end

--- 16 hexadecimal digits that are others if the texts are: tells an edit from a touch, no more.
---@param ... string
---@return string
function core.fingerprint(...) end

return core
