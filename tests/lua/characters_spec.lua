local answer = require "neap.answer"
local characters = require "neap.characters"
local version = require "tests.lua.version"

local BAD = "\239\191\189"

describe("a text becomes UTF-8", function()
  for _, case in ipairs {
    -- given                        becomes                         because
    { "", "", "there is nothing in it" },
    { "plain \0\127", "plain \0\127", "ASCII is, control characters too" },
    { "\195\169\226\130\172\240\159\146\161", "\195\169\226\130\172\240\159\146\161",
      "it is already, of 2, 3 and 4 bytes" },
    { "\195\169\255\195\169", "\195\169" .. BAD .. "\195\169", "only the bad byte is replaced" },
    { "\195", BAD, "it is cut off" },
    { "\226\130x", BAD .. BAD .. "x", "it is cut off before another" },
    { "\169", BAD, "it begins in the middle" },
    { "\192\128", BAD .. BAD, "it is longer than it needs to be" },
    { "\237\160\128", BAD .. BAD .. BAD, "it is half of a pair" },
    { "\244\144\128\128", BAD .. BAD .. BAD .. BAD, "there is no such character" },
  } do
    it(("where %s"):format(case[3]), function()
      local made = characters.of(case[1])
      assert.equal(case[2], made)
      assert(version.utf8.len(made))
    end)
  end
end)

it("JSON that a fallback answers is UTF-8, whatever the policy put into it", function()
  assert.equal('{"name' .. BAD .. '":"\195\169' .. BAD .. '"}',
    answer.of({ ["name\255"] = "\195\169\255" }).body)
end)
