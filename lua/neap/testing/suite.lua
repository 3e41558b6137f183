--- The tests of spec files, and running them: what `neap test` does where busted is not.

local expect = require "neap.testing.expect"
local place = require "neap.testing.place"
local scratch = require "neap.testing.scratch"

local suite = {}

local NO_RUNNER = "nothing runs tests here: neap test FILE does, or busted"

---@class neap.testing.Block a describe, or a file
---@field title string
---@field tests table[] tests and blocks, in order
---@field before function[]
---@field after function[]

---@class (exact) neap.testing.Result of one test
---@field file string
---@field line integer|nil where it begins
---@field name string its titles, from the outside in
---@field status "passed"|"failed"|"error"|"pending"
---@field failure? neap.testing.Failure
---@field message? string of an error: with its place
---@field fails_at? string|nil "file:line" of what failed

local current -- the block whose function runs

local function block_here()
  if not current then place.error(NO_RUNNER) end
  return current
end

-- ---- What specs say ---------------------------------------------------------------------------

local function new_block(title) return { title = title, tests = {}, before = {}, after = {} } end

local function check_title(title)
  if type(title) ~= "string" or title == "" then
    place.error "a title, which is a text, comes first"
  end
end

local function check_function(f)
  if type(f) ~= "function" then
    place.error("a function with the test in it is missing, got %s", type(f))
  end
end

function suite.describe(title, f)
  local outer = block_here()
  check_title(title)
  check_function(f)
  local block = new_block(title)
  table.insert(outer.tests, block)
  current = block
  local ok, err = pcall(f)
  current = outer
  if not ok then error(err, 0) end
end

function suite.it(title, f)
  local block = block_here()
  check_title(title)
  check_function(f)
  local _, line = place.here()
  table.insert(block.tests, { title = title, f = f, line = line })
end

function suite.pending(title)
  local block = block_here()
  check_title(title)
  local _, line = place.here()
  table.insert(block.tests, { title = title, line = line, is_pending = true })
end

function suite.before_each(f)
  check_function(f)
  table.insert(block_here().before, f)
end

function suite.after_each(f)
  check_function(f)
  table.insert(block_here().after, f)
end

-- ---- Running ----------------------------------------------------------------------------------

local function handler(err)
  if type(err) ~= "string" then return err end
  return { text = err, trace = debug.traceback("", 2) }
end

--- The before_each of the outermost block first, the after_each of the innermost.
local function run_all(blocks, f)
  local ok, err = xpcall(function()
    for _, block in ipairs(blocks) do
      for _, before in ipairs(block.before) do before() end
    end
    f()
  end, handler)
  for i = #blocks, 1, -1 do
    for _, after in ipairs(blocks[i].after) do
      local done, fault = xpcall(after, handler)
      if ok and not done then ok, err = false, fault end
    end
  end
  scratch.clear()
  return ok, err
end

local function describe_error(result, err)
  if expect.is_failure(err) then
    result.status, result.failure = "failed", err
    result.message = err.message
    result.fails_at = err.file and ("%s:%d"):format(err.file, err.line)
    return
  end
  result.status = "error"
  local text = type(err) == "table" and err.text or tostring(err)
  result.fails_at = text:match("^([^\n:]+:%d+): ")
  result.message = result.fails_at and text:sub(#result.fails_at + 3) or text
end

local function run_test(test, blocks, file, titles)
  local result = { file = file, line = test.line, name = table.concat(titles, " "),
    status = "passed" }
  if test.is_pending then
    result.status = "pending"
    return result
  end
  local ok, err = run_all(blocks, test.f)
  if not ok then describe_error(result, err) end
  return result
end

local function with(list, value)
  local copy = {}
  for i, one in ipairs(list) do copy[i] = one end
  copy[#copy + 1] = value
  return copy
end

local function run_block(block, blocks, titles, file, wants, on_result)
  blocks = with(blocks, block)
  for _, test in ipairs(block.tests) do
    local own = with(titles, test.title)
    if test.tests then
      run_block(test, blocks, own, file, wants, on_result)
    elseif wants(table.concat(own, " ")) then
      on_result(run_test(test, blocks, file, own))
    end
  end
end

--- Takes out what a file has loaded, so that the next one finds things as the first did.
local function unload(before)
  for name in pairs(package.loaded) do
    if not before[name] and not name:find("^neap%f[%W]") then package.loaded[name] = nil end
  end
end

local function load_file(path, env)
  local f, message
  if _G.setfenv then
    f, message = loadfile(path)
    if f then _G.setfenv(f, env) end
  else
    f, message = loadfile(path, "t", env)
  end
  if not f then return nil, message end
  return f
end

--- Runs the tests of one file.
---@param path string
---@param wants fun(name: string): boolean which of them
---@param on_result fun(result: neap.testing.Result)
---@return boolean|nil ok
---@return string|nil message why its tests could not be found
function suite.run(path, wants, on_result)
  local loaded = {}
  for name in pairs(package.loaded) do loaded[name] = true end
  local file = new_block(path)
  local f, message = load_file(path, setmetatable({}, { __index = _G }))
  if not f then return nil, message end
  current = file
  local ok, err = pcall(f)
  current = nil
  if ok then run_block(file, {}, {}, path, wants, on_result) end
  unload(loaded)
  if not ok then return nil, tostring(err) end
  return true
end

return suite
