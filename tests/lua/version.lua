--- What the Lua that runs the specs can do and can't: the one place that tells versions apart.
--- A spec asks for what it needs, and where that is missing checks what docs/lua.md says instead.

local version = {}

version.is_jit = rawget(_G, "jit") ~= nil

version.unpack = table.unpack or _G.unpack
version.pack = table.pack or function(...) return { n = select("#", ...), ... } end
version.compile = _VERSION == "Lua 5.1" and _G.loadstring or load

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

--- A function that holds `value` in a to-be-closed variable while it calls f; nil where there are
--- none.
function version.closing(value, f)
  local chunk = version.compile "local value, f = ... local _ <close> = value return f()"
  return chunk and function() return chunk(value, f) end
end

return version
