--- Log lines: one per thing that happened, as text or JSON. Both have a sentence for people; JSON
--- has all of it as fields, too, the text those that the sentence lacks.
---
---   2026-11-30T12:00:00.123Z 4.567 warn   transition  flags/default: closed -> open: …  epoch=1 …
---   {"time":"2026-11-30T12:00:00.123Z","uptime":4.567,"level":"warn","event":"transition",…}

local characters = require "neap.characters"
local json = require "neap.cmd.json"

local log = {}

--- Fields that the sentence of a transition has already.
local SAID = {
  policy = true, key = true, from = true, to = true, reason = true, measured = true, limit = true,
  calls = true, open_ms = true, flapping = true, level = true,
}
local IS_TRANSITION = { transition = true, shadow = true }

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
  return characters.printable((text:gsub("\n", "\\n"):gsub("\t", "\\t")))
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
  local said = IS_TRANSITION[event] and SAID or {}
  for _, field in ipairs(fields) do
    if not said[field[1]] then parts[#parts + 1] = field[1] .. "=" .. text_value(field[2]) end
  end
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

--- Opens a log.
---@param options neap.cmd.log.options
function log.open(options)
  return setmetatable({ format = options.format, write = options.write, wall_ms = options.wall_ms,
    uptime_ms = options.uptime_ms, colours = options.colours }, Log)
end

return log
