--- Characters of a text that may be no UTF-8, on every Lua.

local characters = {}

characters.REPLACEMENT = "\239\191\189" -- U+FFFD

--- The length of the well-formed character at text[i], or nil.
---@param text string
---@param i integer
---@return integer|nil
function characters.length(text, i)
  local a, b = text:byte(i, i + 1)
  if a < 0x80 then return 1 end
  local length = a >= 0xC2 and a <= 0xDF and 2 or a >= 0xE0 and a <= 0xEF and 3 or a >= 0xF0
    and a <= 0xF4 and 4
  if not length or not b then return nil end
  local low = a == 0xE0 and 0xA0 or a == 0xF0 and 0x90 or 0x80
  local high = a == 0xED and 0x9F or a == 0xF4 and 0x8F or 0xBF
  if b < low or b > high then return nil end
  if text:find("^" .. ("[\128-\191]"):rep(length - 2), i + 2) then return length end
end

--- The text in UTF-8: each byte that is part of no character is U+FFFD.
---@param text string
---@return string
function characters.of(text)
  local at = text:find("[\128-\255]")
  if not at then return text end
  local parts, i = { text:sub(1, at - 1) }, at
  while i <= #text do
    local length = characters.length(text, i)
    parts[#parts + 1] = length and text:sub(i, i + length - 1) or characters.REPLACEMENT
    i = i + (length or 1)
  end
  return table.concat(parts)
end

local function as_hex(c) return ("\\x%02x"):format(c:byte(-1)) end

--- The text with every control character, also those that are beyond ASCII, as \x1b: a terminal
--- shows it and does nothing else.
---@param text string
---@return string
function characters.printable(text)
  return (text:gsub("[%c\127]", as_hex):gsub("\194[\128-\159]", as_hex))
end

return characters
