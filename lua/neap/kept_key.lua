--- What a last good answer is kept by: what tells one call's answer from another's.
--
--   the policy's key function   what it says
--   a host's id of the request  after the key of its breaker
--   the arguments               after the key of the breaker; one alone, of the default one: itself
--   none of these can be told   nothing is kept

local unpack = table.unpack or _G.unpack

local kept_key = {}

local NO_ARGUMENTS = "\0"

local FEW = 4

--- What an argument adds to a key; nil if it can't be told from others.  In brackets: a tail call
--- of a library function is another thing that LuaJIT does not compile.  Lua 5.1's format takes a
--- text to end at a zero byte.
local function part_of(value)
  local kind = type(value)
  if kind == "string" then return (("s%d:"):format(#value)) .. value end
  if kind == "number" then return (("n%.17g;"):format(value)) end
  if kind == "boolean" then return value and "botrue;" or "bofalse;" end
  return kind == "nil" and "ninil;" or nil
end

--- The parts of so many values; a loop only for many: of one that goes around once or twice LuaJIT
--- compiles nothing, nor then of what is around it.
local function parts_of(n, value, ...)
  if n == 0 then return "" end
  if n > FEW then
    local parts, values = {}, { value, ... }
    for i = 1, n do
      parts[i] = part_of(values[i])
      if not parts[i] then return nil end
    end
    return table.concat(parts)
  end
  local part = part_of(value)
  if n == 1 or not part then return part end
  local rest = parts_of(n - 1, ...)
  return rest and part .. rest
end

local function composed(key, ...)
  local parts = parts_of(select("#", ...), ...)
  return parts and NO_ARGUMENTS .. #key .. ":" .. key .. parts
end

--- One argument that is a key by itself, and can't be mistaken for a composed one.
local function is_key(value)
  local kind = type(value)
  return kind == "string" and value:byte() ~= 0 or kind == "number" and value == value
end

--- What tells one call's answer from another's: its arguments, and the breaker it went through.
--- Nil if they can't be told apart: then nothing is kept, and a stage needs a key function.
function kept_key.of_arguments(line, ...)
  if line.is_default then
    local n, only = select("#", ...), (...)
    if n == 0 then return NO_ARGUMENTS end
    if n == 1 and is_key(only) then return only end
  end
  return composed(line.key, ...)
end

--- What stands before a text that tells answers apart: their key, without a table.  Nothing follows
--- the text, so it needs no length.
---@param line table
---@return string
function kept_key.id_prefix(line)
  local prefix = line.id_prefix
  if not prefix then
    prefix = NO_ARGUMENTS .. #line.key .. ":" .. line.key .. "i"
    line.id_prefix = prefix
  end
  return prefix
end

local function key_of_id(line, id)
  return type(id) == "string" and kept_key.id_prefix(line) .. id or composed(line.key, id)
end

--- What a last_good stage keeps a call's answer by; nil: it keeps none.
---@param stage neap.Stage
---@param line table of the guard
---@param call table as the policy's functions see it
---@param told fun(where: string, message: string) of a fault of the policy's
function kept_key.of(stage, line, call, told)
  if stage.key then
    local key, fault = stage.key(call)
    if fault then told("fallback.last_good key", fault) end
    return key
  end
  local id = call.id
  if id ~= nil then return key_of_id(line, id) end
  local args = call.args
  if not args then return kept_key.of_arguments(line) end
  return kept_key.of_arguments(line, unpack(args, 1, args.n or #args))
end

return kept_key
