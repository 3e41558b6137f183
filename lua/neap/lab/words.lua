--- Numbers and sentences as reports in text have them.

local words = {}

--- 1234567 -> 1,234,567
---@param n number
---@return string
function words.count(n)
  local text = ("%.0f"):format(n):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (text:gsub("^,", ""))
end

--- 1, "time" -> 1 time; 2, "time" -> 2 times
---@param n integer
---@param noun string
---@return string
function words.counted(n, noun)
  return ("%s %s%s"):format(words.count(n), noun, n == 1 and "" or "s")
end

--- A text in lines of at most so many characters; one word that is longer stays whole.
---@param text string
---@param width integer
---@return string
function words.wrapped(text, width)
  local lines, line = {}, ""
  for word in text:gmatch("%S+") do
    if line ~= "" and (utf8.len(line) or #line) + (utf8.len(word) or #word) + 1 > width then
      lines[#lines + 1], line = line, ""
    end
    line = line == "" and word or line .. " " .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

return words
