--- docs/hosts.md says what each host can do, and by which test that is known.

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  return text
end

local function cells(row)
  local found = {}
  for cell in row:gmatch("|([^|\n]*)") do found[#found + 1] = cell:match("^%s*(.-)%s*$") end
  found[#found] = nil -- after the last bar
  return found
end

describe("docs/hosts.md", function()
  local tests = {}
  do
    local pipe = assert(io.popen("ctest --test-dir '" .. os.getenv("NEAP_BUILD") .. "' -N"))
    for name in pipe:read("a"):gmatch("Test +#%d+: (%S+)") do tests[name] = true end
    pipe:close()
  end
  local rows = {}
  for row in read("docs/hosts.md"):gmatch("\n(|[^\n]+)") do
    if not row:match("^|%-") then rows[#rows + 1] = cells(row) end
  end

  it("has a cell for each host in each row", function()
    assert.is_true(#rows > 5)
    for _, row in ipairs(rows) do assert.equal(#rows[1], #row, row[1]) end
  end)

  it("names a test that there is behind each yes", function()
    assert.is_true(next(tests) ~= nil)
    for i = 4, #rows do -- below: the heads, the pages, the versions
      for column = 2, #rows[i] do
        local cell = rows[i][column]
        local place = rows[i][1] .. ", " .. rows[1][column] .. ": " .. cell
        assert.is_truthy(cell:match("^yes[:,]") or cell:match("^no"), place)
        if cell:match("^yes") then assert.is_truthy(cell:match("`[%w_.]+`$"), place) end
        for name in cell:gmatch("`([%w_.]+)`") do assert.is_true(tests[name], place) end
      end
    end
  end)
end)
