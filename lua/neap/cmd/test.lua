--- `neap test`: runs the specs of policies, and says what is not so.
--
--   files    paths -> spec files          a spec, a policy (its specs beside it), a directory
--   run      files -> report              tells each result as it comes
--   json     report -> for programs

local core = require "neap.core"
local json = require "neap.cmd.json"
local policy_files = require "neap.policy_files"
local suite = require "neap.testing.suite"

local test = {}

local DEEPEST = 16 -- directories below a directory

---@class (exact) neap.cmd.test.Report
---@field results neap.testing.Result[]
---@field broken { file: string, message: string }[] specs that do not load
---@field files integer
---@field counts table<string, integer> by status
---@field ms number
---@field ok boolean

-- Finding ----------------------------------------------------------------------------------------

local function add_directory(directory, names, files, depth)
  for _, name in ipairs(names) do
    local path = policy_files.join(directory, name)
    if name:find("^%.") == nil then
      local below = depth < DEEPEST and core.list(path)
      if below then
        add_directory(path, below, files, depth + 1)
      elseif policy_files.is_spec(name) then
        files[#files + 1] = path
      end
    end
  end
end

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

--- The specs beside a policy.
local function add_beside(path, files)
  local stem, found = path:gsub("%.lua$", ""), false
  for _, ending in ipairs(policy_files.SPECS) do
    if exists(stem .. ending) then
      files[#files + 1], found = stem .. ending, true
    end
  end
  return found
end

--- The spec files that a path stands for; nil and why there is none.
local function files_at(path)
  local files, names = {}, core.list(path)
  if names then
    table.sort(names)
    add_directory(path, names, files, 1)
    if not files[1] then return nil, path .. ": there is no *_spec.lua or *_test.lua in it" end
  elseif not exists(path) then
    return nil, path .. ": there is no such file"
  elseif policy_files.is_spec(path) or not path:find("%.lua$") then
    files[1] = path
  elseif not add_beside(path, files) then
    return nil, ("%s: has no spec beside it (%s); neap new writes one with a policy"):format(path,
      (path:gsub("%.lua$", policy_files.SPECS[1])))
  end
  return files
end

--- All spec files that the paths stand for, each once.
---@param paths string[]
---@return string[]|nil files
---@return string|nil message
function test.files(paths)
  local files, is_in = {}, {}
  for _, path in ipairs(paths) do
    local found, message = files_at(path)
    if not found then return nil, message end
    for _, file in ipairs(found) do
      if not is_in[file] then files[#files + 1] = file end
      is_in[file] = true
    end
  end
  return files
end

-- Running ----------------------------------------------------------------------------------------

---@param files string[]
---@param options { filter?: string, now_ms: fun(): number, on_file?: fun(file: string),
---  on_result?: fun(result: neap.testing.Result), on_broken?: fun(file: string, message: string) }
---@return neap.cmd.test.Report
function test.run(files, options)
  local report = {
    results = {}, broken = {}, files = #files,
    counts = { passed = 0, failed = 0, error = 0, pending = 0 },
  }
  local function nothing() end
  local on_file, on_result = options.on_file or nothing, options.on_result or nothing
  local function wants(name)
    return options.filter == nil or name:find(options.filter, 1, true) ~= nil
  end
  local began_ms = options.now_ms()
  for _, file in ipairs(files) do
    on_file(file)
    local ok, message = suite.run(file, wants, function(result)
      report.results[#report.results + 1] = result
      report.counts[result.status] = report.counts[result.status] + 1
      on_result(result)
    end)
    if not ok then
      table.insert(report.broken, { file = file, message = message })
      local say = options.on_broken or nothing
      say(file, message)
    end
  end
  report.ms = options.now_ms() - began_ms
  report.ok = #report.broken == 0 and report.counts.failed + report.counts.error == 0
  return report
end

-- For people -------------------------------------------------------------------------------------

local RED, GREEN, DIM, PLAIN = "\27[31m", "\27[32m", "\27[2m", "\27[0m"
local WORDS = { passed = "ok  ", failed = "FAIL", error = "ERR ", pending = "--  " }

local function indented(text, by)
  return (by .. text:gsub("\n", "\n" .. by)):gsub("\n +\n", "\n\n")
end

--- A test: one line if all is well, else what is wrong and how it came to that.
---@param result neap.testing.Result
---@param colours? boolean
---@return string
function test.line(result, colours)
  local word = WORDS[result.status]
  if colours then
    local of_status = { passed = GREEN, pending = DIM }
    word = (of_status[result.status] or RED) .. word .. PLAIN
  end
  local text = ("  %s  %s\n"):format(word, result.name)
  if not result.message then return text end
  local where = result.fails_at or ("%s:%d"):format(result.file, result.line or 0)
  text = ("%s\n%s\n"):format(text, indented(where .. ": " .. result.message, "        "))
  if result.failure then
    text = ("%s\n%s\n"):format(text, indented(result.failure:timeline(colours), "    "))
  end
  return text .. "\n"
end

local function counted(n, noun) return ("%d %s%s"):format(n, noun, n == 1 and "" or "s") end

---@param report neap.cmd.test.Report
---@param colours? boolean
---@return string
function test.summary(report, colours)
  local counts, parts = report.counts, {}
  for _, pair in ipairs { { "passed", "passed" }, { "failed", "failed" }, { "error", "in error" },
    { "pending", "pending" } } do
    local n = counts[pair[1]]
    if n > 0 or pair[1] == "passed" then parts[#parts + 1] = ("%d %s"):format(n, pair[2]) end
  end
  if #report.broken > 0 then
    parts[#parts + 1] = counted(#report.broken, "file") .. " not loaded"
  end
  local last = report.results[#report.results]
  local blank = last and last.message and "" or "\n" -- one that failed ends with an empty line
  local text = ("%s in %s: %s (%.2f s)"):format(counted(#report.results, "test"),
    counted(report.files, "file"), table.concat(parts, ", "), report.ms / 1000)
  if colours then text = (report.ok and GREEN or RED) .. text .. PLAIN end
  return blank .. text .. "\n"
end

-- For programs -----------------------------------------------------------------------------------

local function row_of(result)
  return {
    file = result.file, line = result.line, name = result.name, status = result.status,
    message = result.message, at = result.fails_at,
    timeline = result.failure and json.list(result.failure.rows) or nil,
  }
end

---@param report neap.cmd.test.Report
---@return string
function test.json(report)
  local rows, broken = {}, {}
  for i, result in ipairs(report.results) do rows[i] = row_of(result) end
  for i, one in ipairs(report.broken) do broken[i] = one end
  return json.encode {
    ok = report.ok, files = report.files, seconds = report.ms / 1000, counts = report.counts,
    tests = json.list(rows), not_loaded = json.list(broken),
  } .. "\n"
end

return test
