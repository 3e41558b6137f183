--- digest(text): what policies tell requests apart by.
local core = require "neap.core"

local digest = core.library().digest

--- What coreutils say of the same text.
local function sum_of(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  local pipe = assert(io.popen("sha256sum <" .. path))
  local sum = pipe:read("*l"):match("^%x+")
  pipe:close()
  os.remove(path)
  return sum
end

describe("digest", function()
  it("is SHA-256: the standard's examples", function()
    assert.equal("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", digest(""))
    assert.equal("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", digest("abc"))
    assert.equal("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
      digest(("a"):rep(1000000)))
  end)

  it("agrees with sha256sum where a text fills a block, or nearly", function()
    for _, length in ipairs { 1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 4095 } do
      local text = ("\0\255x%s"):rep(length):sub(1, length)
      assert.equal(sum_of(text), digest(text), "of " .. length .. " bytes")
    end
  end)

  it("takes numbers as their text, and nothing else", function()
    assert.equal(digest("12"), digest(12))
    for _, value in ipairs { {}, true, print } do
      assert.error_matches(function() digest(value) end, "string expected")
    end
    assert.error_matches(function() digest() end, "string expected")
  end)

  it("charges for long texts: a policy can't spend seconds in it", function()
    local text = ("x"):rep(64 * 1024)
    local box = core.box(100000, 1024 * 1024, 1000)
    local ok, sum = core.run(box, function() return digest(text) end)
    assert.is_true(ok)
    assert.equal(digest(text), sum)
    local n = 0
    local over, _, kind = core.run(box, function()
      while true do
        digest(text)
        n = n + 1
      end
    end)
    assert.is_false(over)
    assert.equal("steps", kind)
    assert.is_true(n < 30, n .. " times 64 KiB for 100,000 steps")
  end)
end)
