--- What a policy file runs in: an environment of its own, and a box that bounds what it may do.
--
--   sees      assert error ipairs next pairs pcall select tonumber tostring type xpcall
--             rawequal rawget rawlen
--             setmetatable getmetatable   (of the policy's own tables, without __gc)
--             rawset                      (not into what the host gave a metatable)
--             math string table           (copies: nobody else's, and they charge for long work)
--             digest                      (of a text: its SHA-256)
--             warn                        (of a text: it goes to the host's log)
--             classify fallback params route require
--   does not  io os debug package coroutine load dofile collectgarbage print, or anything else
--
-- A name that is not known is an error, to read as to write: a misspelt one does not become nil.

local chunk = require "neap.chunk"
local core = require "neap.core"
local suggest = require "neap.suggest"

local sandbox = {}

---@class (exact) neap.Budget
---@field steps? integer of a decision: instructions, about
---@field bytes? integer that it may ask for, freed again or not
---@field ms? integer of processor time

sandbox.DECISION = { steps = 100000, bytes = 1024 * 1024, ms = 50 }
sandbox.LOADING = { steps = 2000000, bytes = 16 * 1024 * 1024, ms = 1000 }

local MOST_SOURCE_BYTES = 256 * 1024
local MOST_MODULES = 100
local MOST_WARNINGS, LONGEST_WARNING = 16, 400

local BASE = {
  "assert", "error", "ipairs", "next", "pairs", "rawequal", "rawget", "rawlen", "select",
  "tonumber", "tostring", "type",
}

local MATH = {
  "abs", "acos", "asin", "atan", "ceil", "cos", "deg", "exp", "floor", "fmod", "huge", "log",
  "max", "maxinteger", "min", "mininteger", "modf", "pi", "rad", "sin", "sqrt", "tan",
  "tointeger", "type",
}

local ABSENT = {}
for _, name in ipairs {
  "io", "os", "debug", "package", "ffi", "jit", "bit", "coroutine", "load", "loadstring",
  "loadfile", "dofile", "collectgarbage", "print", "setfenv", "getfenv", "module", "utf8",
  "unpack",
} do
  ABSENT[name] = true
end

local function copied(from, names)
  local copy = {}
  for _, name in ipairs(names) do copy[name] = from[name] end
  return copy
end

-- A handler that ran where the error is would run inside the step hook, which then does not count.
local function new_xpcall(pcall)
  local function handled(handler, ok, ...)
    if ok then return true, ... end
    return false, select(2, pcall(handler, ...))
  end
  return function(f, handler, ...)
    if type(handler) ~= "function" then
      error("xpcall: the second argument must be a function", 2)
    end
    return handled(handler, pcall(f, ...))
  end
end

--- Lua 5.1 has none: its # asks nobody.
local function rawlen(value) return #value end

-- ---- Text -------------------------------------------------------------------------------------

--- What is wrong with a source before it is looked at as Lua, or nil.
local function text_fault(text)
  if text:find("^%s*$") then return "is empty" end
  if #text > MOST_SOURCE_BYTES then return ("is larger than %d bytes"):format(MOST_SOURCE_BYTES) end
  if text:find("^\239\187\191") then
    return "begins with a byte order mark: save it as UTF-8 without one"
  end
  if text:find("^#[^!]") then
    return "begins with #: a policy is Lua, where comments begin with --"
  end
  if text:find("^#") then return "begins with #: a policy is no script, leave that line out" end
  if text:find("^\27") then return "is compiled Lua: only source is loaded" end
end

--- Lua names a chunk in errors by its first 50 bytes or so: a long path gives way to its end.
local function chunk_name(path)
  return "@" .. (#path <= 50 and path or "..." .. path:sub(-45))
end

local function compile(text, path, env)
  local fault = text_fault(text)
  if fault then return nil, ("%s: %s"):format(path, fault) end
  return chunk.compile(text, chunk_name(path), env)
end

-- ---- Modules ----------------------------------------------------------------------------------

local HERE = select(2, pcall(error, "", 2)):match("^(.*:)%d+: $") or "\0"

local function is_module_name(name)
  return type(name) == "string" and ("." .. name):gsub("%.[%w_]+", "") == ""
end

--- require(name), for the files below `root`: each generation loads its own copies, once.
local function new_require(self)
  local loaded, loading, count = {}, {}, 0
  local stack = {}
  --- Raised for the place where require was called; after a tail call only the file is known.
  local function fail(message, ...)
    local _, place = pcall(error, "", 4)
    local is_here = place == "" or place:find(HERE, 1, true) == 1
    if is_here then place = (stack[#stack] or self.path) .. ": " end
    error(place .. "require: " .. message:format(...), 0)
  end
  return function(name)
    if not is_module_name(name) then
      fail("%s is no name of a module: letters, digits and _, with dots between", tostring(name))
    end
    if loaded[name] ~= nil then return loaded[name] end
    if loading[name] then fail("%s requires itself", name) end
    if not self.is_loading then fail "belongs at the top of the file, not into a function" end
    count = count + 1
    if count > MOST_MODULES then fail("more than %d modules", MOST_MODULES) end
    local path = self.root .. "/" .. name:gsub("%.", "/") .. ".lua"
    local text, message = self.read(path)
    if not text then fail("there is no %s below %s: %s", name, self.root, tostring(message)) end
    self.sources[#self.sources + 1] = { path = path, text = text }
    local made, err = compile(text, path, self.env)
    if not made then error(err, 0) end
    loading[name], stack[#stack + 1] = true, path
    local value = made(name)
    loading[name], stack[#stack] = nil, nil
    if value == nil then value = true end
    loaded[name] = value
    return value
  end
end

-- ---- Warnings ---------------------------------------------------------------------------------

---@class (exact) neap.Warned what a policy's functions have said, for its guard to log: texts
---@field [integer] string
---@field at_ms table<string, number> when each was logged last
---@field private count integer of different ones, ever
---@field private is_known table<string, true> those

--- As if nothing had been said yet.
---@param warned neap.Warned
function sandbox.unwarn(warned)
  for i = #warned, 1, -1 do warned[i] = nil end
  warned.is_known, warned.count = {}, 0
end

--- warn(text): notes it.  The log is the host's own code, which has no place within a decision.
local function new_warn(warned)
  return function(text)
    if type(text) ~= "string" then
      error(("warn: a text is needed, got %s"):format(type(text)), 2)
    end
    text = text:sub(1, LONGEST_WARNING)
    if not warned.is_known[text] then
      if warned.count >= MOST_WARNINGS then return end -- made of what is asked for, no doubt
      warned.is_known[text], warned.count = true, warned.count + 1
    end
    for i = 1, #warned do
      if warned[i] == text then return end
    end
    warned[#warned + 1] = text
  end
end

-- ---- Environments -----------------------------------------------------------------------------

local function known_names(env)
  local names = {}
  for name in next, env do names[#names + 1] = name end
  return names
end

local function strict(env)
  return setmetatable(env, {
    __metatable = false,
    __index = function(_, name)
      if ABSENT[name] then error(("%s is not available to a policy"):format(name), 2) end
      local hint = suggest.hint(name, known_names(env))
      error(("the name %s is not known%s"):format(tostring(name), hint), 2)
    end,
    __newindex = function(_, name)
      name = tostring(name)
      error(("%s is assigned without being declared: write local %s"):format(name, name), 2)
    end,
  })
end

---@class neap.Sandbox
---@field path string of the policy file
---@field env table
---@field box userdata
---@field sources { path: string, text: string }[] of modules, in the order they were read
---@field is_loading boolean
---@field warned neap.Warned
---@field is_own_metatable fun(value: any): boolean

---@class (exact) neap.sandbox.Options
---@field root string
---@field read fun(path: string): string|nil, string|nil
---@field budget? neap.Budget
---@field globals table what else the policy sees

--- A sandbox for one policy generation.
---@param options neap.sandbox.Options
---@return neap.Sandbox
function sandbox.new(options)
  local budget = options.budget or {}
  local library = core.library()
  local self = {
    root = options.root, read = options.read, sources = {}, is_loading = true,
    warned = { at_ms = {}, is_known = {}, count = 0 },
    box = core.box(sandbox.LOADING.steps, sandbox.LOADING.bytes, sandbox.LOADING.ms),
    decision = {
      steps = budget.steps or sandbox.DECISION.steps,
      bytes = budget.bytes or sandbox.DECISION.bytes,
      ms = budget.ms or sandbox.DECISION.ms,
    },
    is_own_metatable = function(value) return type(library.getmetatable(value)) == "table" end,
  }
  local env = copied(_G, BASE)
  env.rawlen = env.rawlen or rawlen
  env.setmetatable, env.getmetatable = library.setmetatable, library.getmetatable
  env.rawset, env.pcall, env.xpcall = library.rawset, library.pcall, new_xpcall(library.pcall)
  env.math, env.string, env.table = copied(math, MATH), library.string, library.table
  env.digest, env.warn = library.digest, new_warn(self.warned)
  env.require, env._G = new_require(self), env
  for name, value in pairs(options.globals) do env[name] = value end
  self.env = strict(env)
  return self
end

--- Runs a file's text, under the budget of a load: true, what it returns | false, message.
---@param self neap.Sandbox
---@param text string
---@param path string
---@return boolean ok, any value
function sandbox.load(self, text, path)
  self.path = path
  local made, err = compile(text, path, self.env)
  if not made then return false, err end
  local ok, value, kind = core.run(self.box, made)
  self.is_loading = false
  core.budget(self.box, self.decision.steps, self.decision.bytes, self.decision.ms)
  if ok then return true, value end
  return false, kind == "error" and value or ("%s: loading it %s"):format(path, value)
end

return sandbox
