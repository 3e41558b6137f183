--- What a terminal sends, as names of keys: "up", "enter", "escape", "j", "ctrl-c".

local characters = require "neap.characters"

local keys = {}

local SEQUENCES = {
  A = "up", B = "down", C = "right", D = "left", H = "home", F = "end", ["5~"] = "pageup",
  ["6~"] = "pagedown", ["1~"] = "home", ["4~"] = "end",
}

local CONTROL = { ["\r"] = "enter", ["\n"] = "enter", ["\127"] = "backspace", ["\8"] = "backspace",
  ["\3"] = "ctrl-c", ["\26"] = "ctrl-z", ["\12"] = "ctrl-l", ["\t"] = "tab" }

--- The keys of what was read at once.
---@param text string
---@return string[]
function keys.of(text)
  local list, at = {}, 1
  while at <= #text do
    local c, sequence = text:sub(at, at), text:match("^\27[%[O]([%d;]*[%a~])", at)
    if sequence then
      list[#list + 1] = SEQUENCES[sequence] or "other"
      at = at + 2 + #sequence
    elseif c == "\27" then
      list[#list + 1] = "escape"
      at = at + 1
    elseif c:find "%c" then
      list[#list + 1] = CONTROL[c] or "other"
      at = at + 1
    else
      local length = characters.length(text, at) or 1
      list[#list + 1] = text:sub(at, at + length - 1)
      at = at + length
    end
  end
  return list
end

return keys
