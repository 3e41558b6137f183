--- neap queue: what waits in the queues of a state directory, and the dead letters.
---
--- Exit status: 0 done; 1 there is no such thing, or it can't be changed now; 2 the command line is
--- wrong.

local characters = require "neap.characters"
local core = require "neap.core"
local letters = require "neap.letters"
local parameters = require "neap.parameters"

local queue = { specs = {
  queue = {
    { name = "requeue", help = "puts the dead letter back into the queue; ID all: each" },
    { name = "drop", help = "forgets the call: nobody makes it any more" },
  },
} }

local OK, FAILED, USAGE = 0, 1, 2

local UNITS = { { 86400000, "d" }, { 3600000, "h" }, { 60000, "min" }, { 1000, "s" } }

local function age_text(at)
  local ms = math.max(0, core.wall_ms() - at)
  for _, unit in ipairs(UNITS) do
    if ms >= unit[1] then return ("%.3g %s"):format(ms / unit[1], unit[2]) end
  end
  return ("%.0f ms"):format(ms)
end

local function fail(self, message)
  self.host.err(("neap queue: %s\n"):format(characters.printable(message)))
  return FAILED
end

local function say(self, text) self.host.out(characters.printable(text) .. "\n") end

--- What was asked for: "POST /events", or the arguments of a Lua call.
local function asked(entry)
  local request = entry.request
  if request then return ("%s %s"):format(request.method or "?", request.target or "?") end
  local args = {}
  for i, arg in ipairs(entry.args or {}) do args[i] = arg end
  return parameters.inline(args)
end

local function counted(n, one, many) return ("%d %s"):format(n, n == 1 and one or many) end

local function line_of(entry, what)
  return ("  %s  %s  %s  %s%s"):format(entry.id, what, age_text(entry.at), asked(entry),
    entry.reason and ": " .. entry.reason or entry.attempts and entry.attempts > 0
      and (" (its own fault, %s)"):format(counted(entry.attempts, "time", "times")) or "")
end

local function show_queue(self, name, has_all)
  local found = letters.read(self.directory .. "/" .. name)
  local oldest = found.waiting[1]
  say(self, ("%s: %s%s, %s"):format(name, counted(#found.waiting, "call waits", "calls wait"),
    oldest and ", the oldest for " .. age_text(oldest.at) or "",
    counted(#found.dead, "dead letter", "dead letters")))
  for _, entry in ipairs(has_all and found.waiting or {}) do say(self, line_of(entry, "waits")) end
  for _, entry in ipairs(has_all and found.dead or {}) do say(self, line_of(entry, "dead ")) end
end

local SECRET = { authorization = true, cookie = true, ["proxy-authorization"] = true }

local function field_text(name, value)
  if SECRET[tostring(name):lower()] then value = "(not shown)" end
  return ("  %s: %s"):format(tostring(name), tostring(value))
end

--- Its header fields, which are by name, or in a list: a name, its value, and so on.
local function show_request(self, request)
  local headers, fields = request.headers or {}, {}
  for i = 1, #headers, 2 do fields[#fields + 1] = field_text(headers[i], headers[i + 1]) end
  for name, value in pairs(headers[1] and {} or headers) do
    fields[#fields + 1] = field_text(name, value)
  end
  table.sort(fields)
  for _, field in ipairs(fields) do say(self, field) end
  for text in (request.body or ""):gmatch "[^\n]+" do say(self, "  | " .. text) end
end

--- All of one call.
local function show_call(self, name, id)
  local found = letters.read(self.directory .. "/" .. name)
  for _, list in ipairs { found.waiting, found.dead } do
    for _, entry in ipairs(list) do
      if entry.id == id then
        say(self, line_of(entry, list == found.dead and "dead " or "waits"):sub(3))
        say(self, "  key: " .. entry.key)
        if entry.request then show_request(self, entry.request) end
        return OK
      end
    end
  end
  return fail(self, ("%s has no call %s"):format(name, id))
end

local function change(self, name, id)
  local act = self.given.requeue and "requeue" or "drop"
  local function warn(text) fail(self, text) end
  local count, message = letters[act](self.directory .. "/" .. name, id, warn)
  if not count then return fail(self, ("%s: %s"):format(name, message)) end
  say(self, ("%s: %s %s"):format(name, counted(count, "call", "calls"),
    act == "requeue" and "back in the queue" or "dropped"))
  return OK
end

--- The command line's mistake, if it has one.
local function mistake(given)
  local is_change = given.requeue or given.drop
  if not given[1] then return "which directory? E.g. neap queue /var/lib/neap" end
  if given[4] then return "a DIRECTORY, a queue's NAME and a call's ID at most" end
  if given.requeue and given.drop then return "--requeue or --drop, not both" end
  if is_change and not given[3] then return "which call? Give NAME and ID, or all" end
end

---@param given table as neap.cmd.options read it
---@param host neap.cmd.host
---@return integer exit_status
function queue.run(_, given, host)
  local self = { given = given, host = host, directory = given[1] }
  local message = mistake(given)
  if message then
    host.err(("neap queue: %s; see neap queue --help\n"):format(message))
    return USAGE
  end
  local names, why = letters.names(self.directory)
  if not names then return fail(self, why) end
  local name, is_known = given[2], false
  for _, known in ipairs(names) do is_known = is_known or known == name end
  if name and not is_known then
    return fail(self, ("%s: there is no queue %s"):format(self.directory, name))
  elseif given.requeue or given.drop then
    return change(self, name, given[3])
  elseif given[3] then
    return show_call(self, name, given[3])
  end
  for _, known in ipairs(name and { name } or names) do show_queue(self, known, name ~= nil) end
  return OK
end

return queue
