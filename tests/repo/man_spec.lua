-- docs/neap.1: what `neap --help` says, as a page that man(1) shows.

local root = assert(os.getenv("NEAP_ROOT"), "NEAP_ROOT is not set")
local neap = assert(os.getenv("NEAP_BIN"), "NEAP_BIN is not set")
local lua = os.getenv("LUA") or "lua5.4"

local function output_of(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("a")
  return text, pipe:close() == true
end

local function read(path)
  local file = assert(io.open(root .. "/" .. path))
  local text = file:read("a")
  file:close()
  return text
end

local page = read "docs/neap.1"

--- Every capture of `pattern` in `text`, sorted and once.
local function all(text, pattern)
  local found, list = {}, {}
  for word in text:gmatch(pattern) do
    if not found[word] then list[#list + 1] = word end
    found[word] = true
  end
  table.sort(list)
  return list
end

describe("neap(1)", function()
  it("is what the help says", function()
    local made = output_of(("cd '%s' && %s scripts/man.lua '%s'"):format(root, lua, neap))
    assert.equal(made, page, "run make docs")
  end)

  local commands = all(output_of("'" .. neap .. "' --help"), "\n  neap (%l+) ")

  for _, command in ipairs(commands) do
    it("has the options of neap " .. command .. " --help, and no others", function()
      local help = output_of(("'%s' %s --help"):format(neap, command))
      local options = all(help, "\n  %-%-([%w-]+)")
      assert.is_true(#options >= 2)
      local section = page:match("\n%.Ss neap " .. command .. ": (.-)\n%.S[hs] ")
      assert.is_string(section, "it has no section for the command")
      assert.same(options, all(section, "\n%.It Fl %-([%w-]+)"))
    end)
  end

  it("says all that the help says, to whoever reads it with man", function()
    local shown = output_of(("mandoc -T ascii -O width=500 '%s/docs/neap.1'"):format(root))
    shown = shown:gsub(".\b", ""):lower() -- struck twice: bold
    for _, command in ipairs(commands) do
      for word in output_of(("'%s' %s --help"):format(neap, command)):gmatch("[%w_/-]+") do
        assert.truthy(shown:find(word:lower(), 1, true), command .. ": the page has no " .. word)
      end
    end
  end)

  it("is right as mdoc", function()
    local said, ok = output_of(("mandoc -T lint '%s/docs/neap.1' 2>&1"):format(root))
    assert.equal("", said)
    assert.is_true(ok)
  end)
end)
