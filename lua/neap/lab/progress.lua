--- How far a long run is, in one line of a terminal that is written over and over.
--
--   [########----------]  41 %  1,210,000 calls/s  12 s left

local words = require "neap.lab.words"

local progress = {}

local WIDTH, EVERY_MS = 24, 200

local function left(ms)
  local s = math.ceil(ms / 1000)
  if s < 120 then return s .. " s left" end
  return ("%d min left"):format(math.ceil(s / 60))
end

---@class neap.lab.progress
---@field step fun(done: number, all: number|nil, calls: integer) bytes, or whatever is counted
---@field stop fun() the line is gone

--- A line for a run that begins now.  Where there is no terminal nothing is written.
---@param host { err: fun(text: string), uptime_ms: (fun(): number), is_terminal: fun(fd: integer):
---  boolean }
---@param noun string what is counted: "calls"
---@return neap.lab.progress
function progress.new(host, noun)
  if not host.is_terminal(2) then
    return { step = function() end, stop = function() end }
  end
  local began_ms, told_ms = host.uptime_ms(), host.uptime_ms()
  local function step(done, all, calls)
    local now_ms = host.uptime_ms()
    if now_ms - told_ms < EVERY_MS then return end
    told_ms = now_ms
    local ms = now_ms - began_ms
    local rate = ("%s %s/s"):format(words.count(calls / ms * 1000), noun)
    local text
    if all and all > 0 then
      local share = math.min(1, done / all)
      local bars = math.floor(share * WIDTH)
      text = ("[%s%s] %3.0f %%  %s  %s"):format(("#"):rep(bars), ("-"):rep(WIDTH - bars),
        math.floor(share * 100), rate, share > 0 and left(ms / share - ms) or "")
    else
      text = ("%s %s  %s"):format(words.count(calls), noun, rate)
    end
    host.err("\r" .. text .. "\27[K")
  end
  return { step = step, stop = function() host.err "\r\27[K" end }
end

return progress
