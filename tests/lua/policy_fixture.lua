--- What the specs of policies share.

local policy = require "neap.policy"

local fixture = {}

--- The text of a policy "x" with these lines in it; it has a trip rule unless they have one.
function fixture.text(lines)
  local trip = lines:find("trip%s*=") and "" or "  trip = { failures = 5 },\n"
  return 'return {\n  name = "x",\n' .. trip .. lines .. "\n}\n"
end

--- That policy, loaded: p | nil, err.
function fixture.parse(lines, options)
  return policy.parse(fixture.text(lines), "policies/x.lua", options)
end

--- A policy that must load.
function fixture.load(lines, options)
  return assert(fixture.parse(lines, options))
end

--- A policy whose classify is that body, of a function of `call`; it only runs for calls that have
--- `now` set, which the trials at load don't.
function fixture.classifier(body, options)
  local before = 'classify = function(call)\n if not call.now then return "success" end\n '
  return fixture.load(before .. body .. "\nend", options)
end

--- A directory with these files; and a function that removes it.
function fixture.directory(files)
  local dir = os.tmpname()
  os.remove(dir)
  assert(os.execute("mkdir -p " .. dir .. "/lib"))
  for name, text in pairs(files) do fixture.write(dir .. "/" .. name, text) end
  return dir, function() os.execute("rm -r " .. dir) end
end

function fixture.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

--- Whether everything is many times as slow as usual: a sanitizer, or an aggressive collector.
function fixture.is_slow()
  local pause = collectgarbage("setpause", 200)
  collectgarbage("setpause", pause)
  return pause == 0 or os.getenv("NEAP_SANITIZER") ~= nil
end

return fixture
