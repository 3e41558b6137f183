--- A text as a function, on every Lua: source only, with an environment of its own, and never
-- compiled by LuaJIT: compiled code would not see the step hook of core.run.

local chunk = {}

local load, loadstring, setfenv = load, _G.loadstring, _G.setfenv
local jit = package.loaded.jit -- not _G.jit, which a host may have taken away from its own scripts

local function load_interpreted(text, name, _, env)
  if text:byte() == 27 then return nil, name:sub(2) .. ": is compiled Lua, not source" end
  local made, err = loadstring(text, name)
  if not made then return nil, err end
  if jit then jit.off(made, true) end
  return setfenv(made, env)
end

local load_text = _VERSION == "Lua 5.1" and load_interpreted or load

--- Protected: else a text that is nested too deeply would call the message handler of the host.
---@param text string
---@param name string "@" and the file's name
---@param env table
---@return function|nil, string|nil err
function chunk.compile(text, name, env)
  local ok, made, err = pcall(load_text, text, name, "t", env)
  if ok then return made, err end
  return nil, made
end

return chunk
