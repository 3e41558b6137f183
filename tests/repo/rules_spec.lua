-- docs/design-rules.md: each rule has a number, and names a test that is there.

local root = assert(os.getenv("NEAP_ROOT"), "NEAP_ROOT is not set")

local function read(path)
  local file = assert(io.open(root .. "/" .. path))
  local text = file:read("a")
  file:close()
  return text
end

local text = read "docs/design-rules.md"

describe("the design rules", function()
  local last = 0
  for number in text:gmatch("\n(%d+)%. ") do
    last = last + 1
    local rule = tonumber(number)
    it(("number %d follows %d, and a test proves it"):format(rule, rule - 1), function()
      assert.equal(1, select(2, text:gsub("\n" .. rule .. "%. ", "")))
      local path, title = text:match("\n| " .. rule .. " | (%S+) | ([^\n]-) |")
      assert.is_string(path, "the table at the end has no test for it")
      assert.truthy(read(path):find(title, 1, true), path .. " has no " .. title)
    end)
  end

  it("are as many as there are tests named", function()
    local named = 0
    for _ in text:gmatch("\n| %d+ | tests/") do named = named + 1 end
    assert.equal(last, named)
    assert.truthy(text:find("\n" .. last .. ". ", 1, true), "the numbers go from 1 to " .. last)
  end)
end)
