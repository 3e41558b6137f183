--- neap top: what neap status says, all the time, in a terminal: see neap.top.
---
--- Exit status: 0 the user ended it; 2 the command line is wrong, or there is no terminal; 3 nobody
--- could be asked.

local client = require "neap.cmd.client"

local top = { specs = { top = client.options } }

local OK, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3

top.help = { top = [[
neap top: the breakers of a neap that runs, in a terminal, all the time

  neap top [options]

A line for each breaker, those in trouble first: its state and when it asks again, the limit that it
is nearest to, calls a second, durations, what fallbacks answered of all that was asked of its
policy, the last minute, and why it is so. Asks every two seconds; while neap does not answer, what
was last known stays, with its age.

%s

Keys:

  j k, arrows, page up and down, g G    which breaker
  enter          all about it: limits, transitions, the policy in force; q goes back
  /              filter, by words of name, state or reason; escape ends it
  s              sort: trouble, name, calls a second
  ctrl-l         ask now, and draw all of it again
  ctrl-z         suspend
  q              end

No colours if NO_COLOR is set. Elsewhere than in a terminal: neap status.

Exit status: 0 it was ended by a key, 2 the command line is wrong or there is no terminal, 3 nobody
could be asked; 128 and the signal's number if a signal ended it.

Examples:

  neap top
  neap top --admin 10.0.0.7:9464 --admin-token-file /run/secrets/neap
]] }

--- Whether the terminal shows more than ASCII.
local function is_utf8(env)
  for _, name in ipairs { "LC_ALL", "LC_CTYPE", "LANG" } do
    local value = env(name)
    if value and value ~= "" then return value:lower():find("utf%-?8") ~= nil end
  end
  return false
end

local function is_live(said)
  return type(said.rows) == "table" and type(said.fields) == "table"
end

local function say(host, message)
  host.err(("neap top: %s\n"):format(message))
end

function top.run(_, given, host, colours)
  if given[1] then
    say(host, ("%s: takes no names; / filters them; see neap top --help"):format(given[1]))
    return USAGE
  end
  if not host.is_terminal(0) or not host.is_terminal(1) or host.env("TERM") == "dumb" then
    say(host, "needs a terminal; elsewhere there is neap status")
    return USAGE
  end
  local first, message, refused = client.ask(host, given, "GET", "/live", nil, is_live)
  if not first then
    say(host, message)
    return refused and FAILED or UNREACHABLE
  end
  local status, fault = require("neap.top").run {
    uv = require "luv", target = client.target(given), encode = client.encode, first = first,
    colours = colours, utf8 = is_utf8(host.env), write = function(text)
      io.stdout:write(text)
      io.stdout:flush()
    end,
  }
  if fault then say(host, "a fault in neap itself: " .. fault) end
  return status or OK
end

return top
