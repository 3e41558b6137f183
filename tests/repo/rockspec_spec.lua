-- The rockspec names every source by hand, as its format wants it: here it is held against the
-- tree.

local root = assert(os.getenv("NEAP_ROOT"), "NEAP_ROOT is not set")

local function lines_of(command)
  local pipe = assert(io.popen(command))
  local list = {}
  for line in pipe:lines() do list[#list + 1] = line end
  assert(pipe:close(), command)
  table.sort(list)
  return list
end

local function find(what) return lines_of(("cd '%s' && find %s"):format(root, what)) end

local rock = {}
assert(loadfile(root .. "/neap-scm-1.rockspec", "t", rock))()
local modules = rock.build.modules

describe("neap-scm-1.rockspec", function()
  it("lists every Lua module of lua/neap and no other", function()
    local listed = {}
    for name, file in pairs(modules) do
      if type(file) == "string" then
        listed[#listed + 1] = file
        local as_named = file:gsub("^lua/", ""):gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", ".")
        assert.equal(as_named, name)
      end
    end
    table.sort(listed)
    assert.same(find("lua/neap -name '*.lua'"), listed)
  end)

  it("lists every source of the core and of the binding", function()
    local listed = table.move(modules["neap.core"].sources, 1, 1000, 1, {})
    table.sort(listed)
    assert.same(find("core/src lua/src -name '*.c'"), listed)
  end)

  it("needs a C compiler and nothing else", function()
    local out = os.tmpname()
    local core = modules["neap.core"]
    local cc = os.getenv("CC") or "cc"
    local command = { "cd '", root, "' && ", cc, " -O2 -fPIC -shared -o ", out }
    for _, dir in ipairs(core.incdirs) do table.insert(command, " -I" .. dir) end
    local headers = lines_of("pkg-config --cflags lua5.4")[1]
    local sources = table.concat(core.sources, " ")
    table.insert(command, (" %s %s 2>&1"):format(headers, sources))
    local pipe = assert(io.popen(table.concat(command)))
    local said = pipe:read("a")
    assert.is_true(pipe:close(), said)
    local open, err = package.loadlib(out, "luaopen_neap_core")
    os.remove(out)
    assert.is_function(open, err)
    assert.is_table(open())
  end)

  it("says 5.4 and nothing about a version of its own", function()
    assert.equal("scm-1", rock.version)
    assert.same({ "lua >= 5.4, < 5.5" }, rock.dependencies)
  end)
end)
