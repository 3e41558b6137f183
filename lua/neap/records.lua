--- Records in a file, each with its length and a checksum, so that one that was not written to its
--- end, or has been damaged, is told from a good one:
--
--   MARK LENGTH CHECKSUM\n
--   the text, of that length\n
--
-- A file begins with a line that says what is in it.

local core = require "neap.core"

local records = {}

local fingerprint = core.fingerprint
local HEAD_MOST = 64 -- bytes of a record's first line

--- A record.
---@param mark string one letter: what sort of record
---@param text string
---@return string
function records.text(mark, text)
  return ("%s %d %s\n"):format(mark, #text, fingerprint(mark, text)) .. text .. "\n"
end

local function head_at(text, at)
  local from, to, mark, length, sum = text:sub(at, at + HEAD_MOST)
    :find("^(%u) (%d+) (%x+)\n")
  if not from or #length > 10 then return nil end
  local first = at + to
  local last = first + tonumber(length) - 1
  if text:sub(last + 1, last + 1) ~= "\n" then return nil end
  return mark, first, last, sum
end

--- Where the record after the one at an offset begins, whatever is in that.
---@param text string
---@param at integer from 1 on
---@return integer|nil next nil: it is not as long as it says
function records.skip(text, at)
  local mark, _, last = head_at(text, at)
  return mark and last + 2 or nil
end

--- The record at an offset of a text.
---@param text string
---@param at integer from 1 on
---@return string|nil mark nil: there is none, or it is not whole
---@return string|nil content
---@return integer|nil next where the one after it begins
function records.at(text, at)
  local mark, first, last, sum = head_at(text, at)
  if not mark then return nil end
  local content = text:sub(first, last)
  if fingerprint(mark, content) ~= sum then return nil end
  return mark, content, last + 2
end

return records
