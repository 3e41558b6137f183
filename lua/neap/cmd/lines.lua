--- On which line of a Lua file is the field that an error is about? Follows the table constructor
--- after `return`; what it can't follow (a table built by statements) has the line of whatever
--- holds it.

local lines = {}

--- Tokens: words, strings, numbers and marks, with their lines; comments and blanks are left out.
local function tokens(text)
  local out, i, line = {}, 1, 1
  local function skip_to(stop)
    local _, feeds = text:sub(i, stop):gsub("\n", "")
    i, line = stop + 1, line + feeds
  end
  while i <= #text do
    local equals = text:match("^%-%-%[(=*)%[", i) or text:match("^%[(=*)%[", i)
    local quote = text:match("^[\"']", i)
    local blank, word, comment = text:match("^%s+", i), text:match("^[%a_][%w_]*", i),
      text:match("^%-%-[^\n]*", i)
    if blank then
      skip_to(i + #blank - 1)
    elseif equals then
      local is_comment = text:sub(i, i) == "-"
      local _, stop = text:find("]" .. equals .. "]", i, true)
      if not is_comment then out[#out + 1] = { "string", "", line } end
      skip_to(stop or #text)
    elseif comment then
      skip_to(i + #comment - 1)
    elseif quote then
      local stop = i + 1
      while stop <= #text and text:sub(stop, stop) ~= quote do
        stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
      end
      out[#out + 1] = { "string", text:sub(i + 1, stop - 1), line }
      skip_to(stop)
    else
      local mark = word or text:sub(i, i)
      out[#out + 1] = { word and "word" or "mark", mark, line }
      i = i + #mark
    end
  end
  return out
end

local function is(token, mark) return token ~= nil and token[1] ~= "string" and token[2] == mark end

local OPENS = { ["{"] = true, ["("] = true, ["["] = true, ["function"] = true, ["do"] = true,
  ["then"] = true }
local CLOSES = { ["}"] = true, [")"] = true, ["]"] = true, ["end"] = true, ["elseif"] = true }

local table_at

--- Past the value that begins at token i, noting the lines of a table's fields.
local function value_at(all, i, path, found)
  if is(all[i], "{") then return table_at(all, i, path, found) end
  local depth = 0
  while all[i] do
    local mark = all[i][1] ~= "string" and all[i][2]
    if depth == 0 and (mark == "," or mark == ";" or mark == "}") then return i end
    if OPENS[mark] then depth = depth + 1 end
    if CLOSES[mark] then depth = depth - 1 end
    i = i + 1
  end
  return i
end

--- The key of the field at token i, and where its value begins.
local function key_at(all, i, position)
  if all[i][1] == "word" and is(all[i + 1], "=") and not is(all[i + 2], "=") then return all[i][2],
    i + 2 end
  if is(all[i], "[") and all[i + 1] and all[i + 1][1] == "string" and is(all[i + 2], "]")
    and is(all[i + 3], "=") then
    return all[i + 1][2], i + 4
  end
  return position, i
end

function table_at(all, i, path, found)
  local position = 1
  i = i + 1
  while all[i] and not is(all[i], "}") do
    if is(all[i], ",") or is(all[i], ";") then
      i = i + 1
    else
      local key, start = key_at(all, i, position)
      if key == position then position = position + 1 end
      local inner = path == "" and tostring(key) or path .. "." .. key
      found[inner] = found[inner] or all[i][3]
      i = value_at(all, start, inner, found)
    end
  end
  return i + 1
end

--- A function that answers the line of a field: "routes.2.upstream" -> 7.
---@param text string
---@return fun(path: string): integer
function lines.finder(text)
  local all, found = tokens(text), {}
  local root = 1
  for i = 1, #all do
    if is(all[i], "return") and is(all[i + 1], "{") then
      root = all[i][3]
      table_at(all, i + 1, "", found)
    end
  end
  return function(path)
    while path ~= "" do
      if found[path] then return found[path] end
      path = path:match("^(.*)%.[^.]*$") or ""
    end
    return root
  end
end

return lines
