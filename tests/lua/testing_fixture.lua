--- What the specs of neap.testing share: a policy, and how they look at what it says.
local fixture = require "tests.lua.policy_fixture"

local on = {}

--- For setup(), and for teardown().
function on.begin() on.directory, on.remove = fixture.directory {} end
function on.finish() on.remove() end

--- The path of a policy "x" with these lines in it.  Who puts it on a bench is named in what fails.
function on.policy(lines)
  local path = on.directory .. "/x.lua"
  fixture.write(path, fixture.text(lines))
  return path
end

--- What it is told is wrong.
function on.told(f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "nothing is wrong")
  return tostring(err)
end

function on.has(text, part)
  if not text:find(part, 1, true) then error(("%q is not in:\n%s"):format(part, text), 2) end
end

return on
