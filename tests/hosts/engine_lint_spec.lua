--- B173, B190: whatever can raise in the engine's C is inside a protected call.
--
-- In lua/engine/engine*.c a function that Lua calls, or that such a function calls, takes the
-- lua_State (or a buffer on it) as its first argument, and may raise.  All others are called by the
-- program or the loop with nothing to catch an error: they use only what cannot raise.

local ROOT = os.getenv("NEAP_ROOT") or "."
local FILES = {
  "engine.c", "engine_answer.c", "engine_call.c", "engine_event.c", "engine_guard.c",
  "engine_lua.c", "engine_operate.c", "engine_remember.c",
}

--- What a function without a net may do: none of these allocates, calls or runs a metamethod.
local HARMLESS = {}
for name in ([[ lua_gettop lua_settop lua_pop lua_type lua_tostring lua_remove lua_insert lua_pcall
  lua_checkstack lua_pushcfunction lua_pushlightuserdata lua_close lua_newstate lua_atpanic
  lua_getextraspace ]]):gmatch("%S+") do HARMLESS[name] = true end

--- Function definitions: { name, arguments, body }.  They begin in the first column.
local function functions_of(text)
  local list = {}
  for head, rest in ("\n" .. text):gmatch("\n([%a_][%w_ %*]*%b()) {()") do
    local body = text:sub(rest - 1):match("^[^\n]*}\n") or text:sub(rest - 1):match("^.-\n}")
    list[#list + 1] = {
      name = head:match("([%w_]+)%("), arguments = head:match("%((.*)%)"), body = body or "",
    }
  end
  return list
end

local function raising(f)
  local found = {}
  local body = f.body:gsub("/%*.-%*/", ""):gsub('"[^"\n]*"', "")
  for name in body:gmatch("%f[%w_](luaL?_[%w_]+)%(") do
    if not HARMLESS[name] then found[#found + 1] = name end
  end
  return found
end

describe("the engine's C", function()
  local count = 0
  for _, file in ipairs(FILES) do
    it("raises only under a protected call (B173, B190): " .. file, function()
      local handle = assert(io.open(ROOT .. "/lua/engine/" .. file))
      local text = handle:read("a")
      handle:close()
      for _, f in ipairs(functions_of(text)) do
        if not f.arguments:find("^luaL?_%w+ %*[Lb]") then
          count = count + 1
          local found = raising(f)
          assert(#found == 0, ("%s:%s uses %s"):format(file, f.name, table.concat(found, ", ")))
        end
      end
    end)
  end

  it("was looked at", function()
    assert.is_true(count > 40, count)
  end)

  it("would be caught", function()
    local text = 'void bad(engine *e,\n  int i) {\n  lua_getfield(e->L, i, "x");\n}\n'
    local f = functions_of(text)[1]
    assert.same({ "lua_getfield" }, raising(f))
    f = functions_of("int one(neap_engine *e) { return lua_call(e->L, 0, 0), 1; }\n")[1]
    assert.same({ "lua_call" }, raising(f))
  end)
end)
