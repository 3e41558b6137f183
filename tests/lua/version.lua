--- What the Lua that runs the specs can do and can't: the one place that tells versions apart.
--- A spec asks for what it needs, and where that is missing checks what docs/lua.md says instead.

local version = {}

version.is_jit = rawget(_G, "jit") ~= nil

version.unpack = table.unpack or _G.unpack
version.pack = table.pack or function(...) return { n = select("#", ...), ... } end
version.compile = _VERSION == "Lua 5.1" and _G.loadstring or load

version.utf8 = rawget(_G, "utf8") or require "compat53.utf8"

--- The interpreter, for a shell.
version.command = os.getenv "LUA" or "lua5.4"

--- "integer" or "float", or "number" where there is no difference.
version.kind_of = math.type or type
version.integer = version.kind_of(1)

--- local x <close>
version.has_close = version.compile "local _ <close> = nil" ~= nil

version.has_goto = version.compile "goto x ::x::" ~= nil

--- pairs asks __pairs.
version.has_pairs = pcall(pairs, setmetatable({}, { __pairs = error })) == false

--- A function may yield below pcall, and so below guard:call.
version.can_yield = select("#", coroutine.resume(coroutine.create(function()
  return pcall(coroutine.yield)
end))) == 1

--- Collects all there is to collect: what LuaJIT compiled, too.
function version.collect()
  if version.is_jit then require("jit").flush() end
  collectgarbage()
  collectgarbage()
end

--- Drops a coroutine that waits.  To be given it at once: whoever else holds it keeps it alive.
function version.give_up(co)
  if coroutine.close then return assert(coroutine.close(co)) end
  co = nil -- luacheck: ignore
  collectgarbage()
  collectgarbage()
end

--- An object that, when it is collected, has f called.
function version.finalized(f)
  if not _G.newproxy then return setmetatable({}, { __gc = f }) end
  local object = _G.newproxy(true)
  getmetatable(object).__gc = f
  return object
end

--- How many arguments a call can have, about.
version.most_arguments = _VERSION == "Lua 5.1" and 7000 or 100000

--- string.match gives up on patterns that nest too deeply, rather than try for ever.
version.has_bounded_patterns = not pcall(string.match, ("x"):rep(300), ("x?"):rep(300))

--- What indexing a field, or else a global, that is nil raises.
function version.index_nil(name, kind)
  local text = _VERSION == "Lua 5.1" and "attempt to index %s '%s' (a nil value)"
    or "attempt to index a nil value (%s '%s')"
  return text:format(kind or "field", name)
end

--- How the end of a text is called in a syntax error.
version.eof = _VERSION == "Lua 5.1" and "'<eof>'" or "<eof>"

--- How often something is to be done until all that LuaJIT compiles of it is compiled.
version.rounds_to_settle = version.is_jit and 2000 or 10

--- A function that holds `value` in a to-be-closed variable while it calls f; nil where there are
--- none.
function version.closing(value, f)
  local chunk = version.compile "local value, f = ... local _ <close> = value return f()"
  return chunk and function() return chunk(value, f) end
end

return version
