--- What the specs of neap.testing share: a policy, and looking at what is said.
local fixture = require "tests.lua.policy_fixture"

local on = {}

--- For setup(), and for teardown().
function on.begin() on.directory, on.remove = fixture.directory {} end
function on.finish() on.remove() end

--- The path of a policy "x" with these lines in it.  The spec puts it on a bench: that place is
--- named in what fails.
function on.policy(lines)
  local path = on.directory .. "/x.lua"
  fixture.write(path, fixture.text(lines))
  return path
end

function on.has(text, part)
  if not text:find(part, 1, true) then error(("%q is not in:\n%s"):format(part, text), 2) end
end

return on
