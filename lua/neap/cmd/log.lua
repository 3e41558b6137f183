--- Log lines: one per thing that happened, as text or JSON. Both carry the same fields; the text
--- has a sentence for people besides.
---
---   2026-11-30T12:00:00.123Z 4.567 warn   transition  flags/default opened: …  policy=flags …
---   {"time":"2026-11-30T12:00:00.123Z","uptime":4.567,"level":"warn","event":"transition",…}

local json = require "neap.cmd.json"

local log = {}

local COLOURS = { error = "\27[31m", warn = "\27[33m", info = "\27[32m" }

---@class neap.cmd.log.options
---@field format "text"|"json"
---@field write fun(line: string)        takes one line, its line feed included
---@field wall_ms fun(): number          milliseconds since 1970, for people
---@field uptime_ms fun(): number        of a clock that never jumps, for measuring between lines
---@field colours? boolean

local function stamp(wall_ms)
  local seconds = math.floor(wall_ms / 1000)
  return os.date("!%Y-%m-%dT%H:%M:%S", seconds)
    .. (".%03dZ"):format(math.floor(wall_ms - seconds * 1000))
end

--- Keeps a line a line, and a terminal safe: control characters are written as in C.
local function printable(text)
  return (text:gsub("[%c\127]", function(c)
    return c == "\n" and "\\n" or c == "\t" and "\\t" or ("\\x%02x"):format(c:byte())
  end))
end

local function text_value(value)
  if type(value) == "number" then return ("%.14g"):format(value) end
  local text = printable(tostring(value))
  if text ~= "" and not text:find('[ "=]') then return text end
  return '"' .. text:gsub('"', '\\"') .. '"'
end

local function json_value(value)
  local kind = type(value)
  if kind == "boolean" then return tostring(value) end
  return kind == "number" and json.number(value) or json.text(tostring(value))
end

local function as_text(self, level, event, message, fields)
  local colour = self.colours and COLOURS[level]
  local parts = { ("%s %.3f %s  %s  %s"):format(stamp(self.wall_ms()), self.uptime_ms() / 1000,
    colour and colour .. ("%-5s"):format(level) .. "\27[0m" or ("%-5s"):format(level), event,
      printable(message)) }
  for _, field in ipairs(fields) do parts[#parts + 1] = field[1] .. "=" .. text_value(field[2]) end
  return parts[1] .. (#parts > 1 and "  " or "") .. table.concat(parts, " ", 2) .. "\n"
end

local function as_json(self, level, event, message, fields)
  local parts = {
    '"time":' .. json.text(stamp(self.wall_ms())),
    ('"uptime":%.3f'):format(self.uptime_ms() / 1000),
    '"level":' .. json.text(level), '"event":' .. json.text(event), '"message":'
      .. json.text(message),
  }
  for _, field in ipairs(fields) do parts[#parts + 1] = json.text(field[1]) .. ":"
    .. json_value(field[2]) end
  return "{" .. table.concat(parts, ",") .. "}\n"
end

local Log = {}
Log.__index = Log

--- Writes one line.
---@param level "info"|"warn"|"error"
---@param event string    what kind of thing: "transition", "reload", "start" …
---@param message string  a sentence
---@param fields? table[] { name, value } in the order to print
function Log:line(level, event, message, fields)
  local render = self.format == "json" and as_json or as_text
  self.write(render(self, level, event, message, fields or {}))
end

-- Transitions ------------------------------------------------------------------------------------

local function plural(n, noun) return ("%.14g %s%s"):format(n, noun, n == 1 and "" or "s") end
local function percent(share) return ("%.4g %%"):format(share * 100) end

--- What caused a transition, with each number named by what it is.
local BECAUSE = {
  failures = function(e) return ("%s in the window, limit %d"):format(plural(e.measured, "failure"),
    e.limit) end,
  failure_rate = function(e)
    return ("%d of %s in the window failed, limit %s"):format(e.measured, plural(e.calls, "call"),
      percent(e.limit))
  end,
  slow_rate = function(e)
    return ("%d of %s in the window slow, limit %s"):format(e.measured, plural(e.calls, "call"),
      percent(e.limit))
  end,
  consecutive_failures = function(e) return ("%s in a row, limit %d"):format(plural(e.measured,
    "failure"), e.limit) end,
  ["function"] = function() return "the policy's function decided" end,
  cooldown = function() return "the cooldown is over, the first probe goes" end,
  probes = function(e)
    local what = e.to == "closed" and "succeeded" or "failed"
    return ("%s %s, %d decide"):format(plural(e.measured, "probe"), what, e.limit)
  end,
  probe_lost = function(e) return ("%s never reported back"):format(plural(e.measured,
    "probe")) end,
  reset = function() return "reset by hand" end,
  trip = function() return "tripped by hand" end,
}

local VERB = { open = "opened", half_open = "is half-open", closed = "closed" }

--- The sentence about a transition.
---@param e neap.event
function log.sentence(e)
  local because = BECAUSE[e.cause] and BECAUSE[e.cause](e) or e.cause
  local sentence = ("%s/%s %s: %s"):format(e.policy, e.key, VERB[e.to] or e.to, because)
  if e.to == "open" then sentence = sentence .. ("; for %.14g ms"):format(e.open_ms) end
  return e.flapping and sentence .. ", flapping" or sentence
end

local EVENT_FIELDS = { "policy", "key", "from", "to", { "reason", "cause" }, "measured", "limit",
  "calls", "level", "epoch",
  "open_ms", "flapping", "by", { "policy_hash", "hash" } }

--- The line for a transition, with the rule, the numbers and the threshold that caused it.
function Log:transition(e)
  local fields = {}
  for _, name in ipairs(EVENT_FIELDS) do
    local shown, key = name, name
    if type(name) == "table" then shown, key = name[1], name[2] end
    if e[key] ~= nil then fields[#fields + 1] = { shown, e[key] } end
  end
  self:line(e.to == "open" and "warn" or "info", "transition", log.sentence(e), fields)
end

--- Opens a log.
---@param options neap.cmd.log.options
function log.open(options)
  return setmetatable({ format = options.format, write = options.write, wall_ms = options.wall_ms,
    uptime_ms = options.uptime_ms, colours = options.colours }, Log)
end

return log
