--- Runs an example and holds what it prints against the comment at its end:
---
---   lua5.4 tests/support/example.lua FILE COMMAND
---
--- The comment begins with a line "prints" and has the output, word for word.
local path, command = arg[1], table.concat(arg, " ", 2)

local file = assert(io.open(path))
local text = file:read("a")
file:close()
local expected = text:match("\n%-%-%[%[ prints\n(.*\n)%]%]\n$")
  or text:match("\n/%* prints\n(.*\n)%*/\n$")
if not expected then
  print(path .. ": does not end with a comment that says what it prints")
  os.exit(1)
end

local pipe = assert(io.popen(command .. " 2>&1"))
local printed = pipe:read("a")
local ok = pipe:close()
if not ok or printed ~= expected then
  io.write(ok and "printed:\n" or "failed, having printed:\n", printed, "instead of:\n", expected)
  os.exit(1)
end
