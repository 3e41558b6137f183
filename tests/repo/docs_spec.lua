-- Every code block of the README and of docs/ runs: what they say can't drift from what is so.

local docs = require "tests.support.docs"

local root = assert(os.getenv("NEAP_ROOT"), "NEAP_ROOT is not set")
local build = assert(os.getenv("NEAP_BUILD"), "NEAP_BUILD is not set")

local function read(path)
  local file = assert(io.open(root .. "/" .. path))
  local text = file:read("a")
  file:close()
  return text
end

local function list(pattern)
  local pipe = assert(io.popen(("cd '%s' && ls -d %s 2>/dev/null"):format(root, pattern)))
  local names = {}
  for name in pipe:lines() do names[#names + 1] = name end
  pipe:close()
  return names
end

local function fence(info, text, note)
  return ("%s```%s\n%s\n```\n"):format(note and "<!-- " .. note .. " -->\n" or "", info, text)
end

describe("the runner of documents", function()
  local place
  before_each(function() place = docs.workplace(root, build) end)
  after_each(function() docs.remove(place) end)

  for _, case in ipairs {
    -- a document                                          what it says
    { fence("sh", "false"),                                "line 2: the block failed" },
    { "text\n\n" .. fence("lua", "error 'no'"),            "line 4: the block failed" },
    { "1. one\n\n   " .. fence("sh", "   false"):gsub("\n```", "\n   ```"), "line 4: the block" },
    { fence("lua policy", 'return { name = "x", a = {} }'), "a" },
    { fence("lua rules", "open = { cooldown_ms = -1 }"),   "cooldown_ms" },
    { fence("c", "int main(void) { return 1; }"),          "failed" },
    { fence("c", "int f(void) { return x; }"),             "failed" },
    { fence("sh", "echo a") .. fence("text", "b", "printed"), "is not what was printed" },
    { fence("text", "b", "file: LICENSE"),                 "is not what LICENSE says" },
    { fence("cobol", "STOP RUN."),                         "not known" },
  } do
    it("sees what is wrong with " .. case[1]:gsub("\n", "|"), function()
      local count, err = docs.run(place, case[1])
      assert.is_nil(count)
      assert.truthy(err:find(case[2], 1, true), err)
    end)
  end

  it("runs a right one to its end", function()
    local text = fence("lua", "-- a.lua\nprint 'hello'") .. fence("sh", "lua5.4 a.lua")
      .. fence("text", "hello", "printed")
    assert.equal(3, docs.run(place, text))
  end)
end)

describe("the document", function()
  local documents = list("docs/*.md")
  table.insert(documents, 1, "README.md")
  for _, path in ipairs(documents) do
    it(path .. " runs from top to bottom", function()
      local place = docs.workplace(root, build)
      finally(function() docs.remove(place) end)
      local count, err = docs.run(place, read(path))
      assert(count, err and (path .. ", " .. err))
    end)

    it(path .. " points at files that are there", function()
      for target in read(path):gmatch("%]%(([^)#]+)[^)]*%)") do
        if not target:match("^%a+:") then
          local base = path:match("^(.*/)") or ""
          local file = io.open(root .. "/" .. base .. target)
          assert(file, path .. " points at " .. target)
          file:close()
        end
      end
    end)
  end
end)
