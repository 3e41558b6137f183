--- neap test and neap new: for those who write policies.
---
--- Exit status: 0 done, or all is well; 1 it is not; 2 the command line is wrong.

local kinds = require "neap.cmd.kinds"
local new = require "neap.cmd.new"
local test = require "neap.cmd.test"

local develop = {}

local OK, FAILED, USAGE = 0, 1, 2

develop.specs = {
  test = {
    { name = "filter", value = "TEXT", example = "'after five'",
      help = "only tests that have it in their names" },
    { name = "json", help = "the same as JSON" },
  },
  new = {
    { name = "kind", value = "KIND", example = "http", read = new.kind,
      help = table.concat(kinds.names(), ", ") .. "; http if not given" },
    { name = "dir", value = "DIRECTORY", example = "policies",
      help = "where; policies if there is one, else here" },
    { name = "failures", value = "N", example = "5", read = new.failures,
      help = "so many failures in a row open it" },
    { name = "timeout-ms", value = "MS", example = "500", read = new.timeout_ms,
      help = "after which a call is too late" },
  },
}

local commands = {}

local function usage(host, name, message)
  host.err(("neap %s: %s; see neap %s --help\n"):format(name, message, name))
  return USAGE
end

local function say_broken(host, file, message)
  local has_place = message:sub(1, #file) == file
  host.err(("neap test: %s\n"):format(has_place and message or file .. ": " .. message))
end

function commands.test(given, host, colours)
  if not given[1] then
    return usage(host, "test",
      "which? Name specs, policies or directories, e.g. neap test policies")
  end
  local files, message = test.files(given)
  if not files then
    host.err(("neap test: %s\n"):format(message))
    return USAGE
  end
  local is_text = not given.json
  local report = test.run(files, {
    filter = given.filter, now_ms = host.uptime_ms,
    on_file = is_text and function(file) host.out(file .. "\n") end or nil,
    on_result = is_text and function(result) host.out(test.line(result, colours)) end or nil,
    on_broken = function(file, fault) say_broken(host, file, fault) end,
  })
  host.out(is_text and test.summary(report, colours) or test.json(report))
  if report.ok and #report.results == 0 then
    return usage(host, "test", given.filter and ("no test has %q in its name"):format(given.filter)
      or "there is no test in " .. table.concat(files, ", "))
  end
  return report.ok and OK or FAILED
end

function commands.new(given, host)
  local name = given[1]
  if not name then return usage(host, "new", "which name? E.g. neap new search") end
  if given[2] then return usage(host, "new", "one name at a time, not " .. given[2]) end
  local fault = new.name_fault(name)
  if fault then return usage(host, "new", fault) end
  local wanted = new.wanted(given, host)
  local paths, message = new.write(wanted)
  if not paths then
    host.err(("neap new: %s\n"):format(message))
    return FAILED
  end
  host.out(new.next_steps(wanted, paths))
  return OK
end

--- Runs one of them.
---@param name string
---@param given table as neap.cmd.options read it
---@param host neap.cmd.host
---@param colours boolean
---@return integer exit_status
function develop.run(name, given, host, colours)
  return commands[name](given, host, colours)
end

return develop
