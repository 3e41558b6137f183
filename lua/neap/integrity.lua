--- What a page's Content-Security-Policy says of a script or style in it: its digest, as a browser
--- takes it.

local core = require "neap.core"

local integrity = {}

local LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

--- Hexadecimal digits in base64.
local function base64(hex)
  local letters = {}
  for i = 1, #hex, 6 do
    local part = hex:sub(i, i + 5)
    local bits = tonumber(part .. ("0"):rep(6 - #part), 16)
    for j = 1, 4 do
      local at = math.floor(bits / 64 ^ (4 - j)) % 64 + 1
      letters[#letters + 1] = j <= #part / 2 + 1 and LETTERS:sub(at, at) or "="
    end
  end
  return table.concat(letters)
end

--- The source that lets that text, and no other, run or be in force: 'sha256-…'.
---@param text string what stands between the tags
---@return string
function integrity.source(text)
  return ("'sha256-%s'"):format(base64(core.library().digest(text)))
end

return integrity
