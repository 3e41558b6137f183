--- Runs a document: its code blocks, from top to bottom, in a directory that looks like the project's root.
---
---   ```sh             run; it must succeed
---   ```lua            run by the interpreter; a first line "-- NAME.lua" writes it to that file instead
---   ```lua policy     a policy file: it must load; a first line as above writes it too
---   ```lua rules      keys of a policy: they must load, put into a policy that has the rest
---   ```c              compiled and, if there is a main, run; a first line as above writes it
---   ```text           nothing, unless <!-- printed --> stands before it: then it is what the last block printed
---   <!-- file: PATH -->  before a block: the block is that file, word for word
---   <!-- as written: COMMAND -->  before a sh block: it is run by another test; only looked at
local docs = {}

---@class docs.block
---@field line integer   of its first line of code
---@field info string    what stands after the fence
---@field text string
---@field note string?   the HTML comment just before it

--- The fenced blocks of a Markdown text, in order.
---@return docs.block[]
function docs.blocks(markdown)
  local blocks, block, note, line = {}, nil, nil, 0
  for text in (markdown .. "\n"):gmatch("(.-)\n") do
    line = line + 1
    if block and text:match("^```%s*$") then
      block.text = table.concat(block, "\n") .. "\n"
      blocks[#blocks + 1], block, note = block, nil, nil
    elseif block then
      block[#block + 1] = text
    elseif text:match("^```") then
      block = { line = line + 1, info = text:match("^```%s*(.-)%s*$"), note = note }
    elseif text:match("%S") then
      note = text:match("^<!%-%-%s*(.-)%s*%-%->$")
    end
  end
  assert(not block, "a block is not closed")
  return blocks
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  return text
end

local function quoted(text) return "'" .. text:gsub("'", [['\'']]) .. "'" end

--- Runs a shell command in `dir`; answers whether it succeeded and what it printed.
local function sh(dir, command)
  local pipe = assert(io.popen(("cd %s && { %s\n} 2>&1"):format(quoted(dir), command)))
  local said = pipe:read("a")
  return pipe:close() == true, said
end

--- A directory with all of the project that documents speak of; policies and examples are copies, to
--- be edited.
function docs.workplace(root, build)
  local dir = os.tmpname()
  os.remove(dir)
  local linked = "core lua tests docs scripts README.md Makefile CMakeLists.txt"
  assert(sh(root, ("mkdir %s && cp -r policies examples %s && for i in %s; do ln -s $PWD/$i %s; done")
    :format(dir, dir, linked, dir)))
  return { dir = dir, root = root, build = build, lua = arg and arg[-1] or "lua5.4" }
end

function docs.remove(place) sh("/", "rm -rf " .. quoted(place.dir)) end

local run = {}

--- The name in a first line that is nothing but a comment with a file name.
local function file_named(text)
  return text:match("^%-%- ([%w_./-]+%.%w+)\n") or text:match("^/%* ([%w_./-]+%.%w+) %*/\n")
    or text:match("^# ([%w_./-]+%.%w+)\n")
end

local function put(place, name, text)
  local path = place.dir .. "/" .. name
  sh(place.dir, "mkdir -p " .. quoted(name:match("^(.*)/") or "."))
  write(path, text)
  return path
end

function run.sh(place, block)
  write(place.dir .. "/.block.sh", block.text)
  return sh(place.dir, ("PATH=%s/bin:$PATH sh -eu .block.sh"):format(quoted(place.build)))
end

run["lua"] = function(place, block)
  local name = file_named(block.text)
  put(place, name or ".block.lua", block.text)
  if name then return true, "" end
  return sh(place.dir, quoted(place.lua) .. " .block.lua")
end

local function check_policy(place, path)
  write(place.dir .. "/.check.lua", [[
    local p, err = require "neap.policy".load(arg[1], { params = { defaults = {} } })
    if not p then print(err) os.exit(1) end]])
  return sh(place.dir, ("%s .check.lua %s"):format(quoted(place.lua), quoted(path)))
end

run["lua policy"] = function(place, block)
  local name = file_named(block.text)
    or (block.text:match('name = "([%w_]+)"') or "unnamed") .. ".lua"
  return check_policy(place, put(place, name, block.text))
end

run["lua rules"] = function(place, block)
  local given = block.text
  local parts = { 'return { name = "rules",' }
  if not given:find("trip%s*=") then parts[#parts + 1] = "trip = { failures = 5 }," end
  parts[#parts + 1] = given:gsub("%s*$", ""):gsub(",?$", ",") .. "\n}"
  return check_policy(place, put(place, ".block/rules.lua", table.concat(parts, " ")))
end

run["c"] = function(place, block)
  local name = file_named(block.text)
  put(place, name or ".block.c", block.text)
  if name then return true, "" end
  local has_main = block.text:find("int main", 1, true)
  local rest = has_main and ("-o .block %s/core/libneap.a && ./.block"):format(quoted(place.build))
    or "-fsyntax-only"
  return sh(place.dir, "cc -std=gnu11 -Wall -Wextra -Werror -Icore/include -Ilua/engine/include .block.c "
    .. rest)
end

local not_run = { [""] = true, text = true, html = true, json = true, yaml = true, cmake = true }

local function one(place, block, printed)
  local note = block.note or ""
  local path = note:match("^file: (.+)$")
  if path and read(place.root .. "/" .. path) ~= block.text then
    return nil, "is not what " .. path .. " says"
  end
  if note == "printed" and printed ~= block.text then
    return nil, "is not what was printed, which is:\n" .. printed
  end
  if path or note:match("^as written:") or not_run[block.info] then return printed end
  local how = run[block.info]
  if not how then return nil, ("the language %q is not known"):format(block.info) end
  local ok, said = how(place, block)
  if not ok then return nil, "failed:\n" .. said end
  return said
end

--- Runs all blocks of `markdown`; answers how many, or nil and what is wrong where.
function docs.run(place, markdown)
  local printed = ""
  local blocks = docs.blocks(markdown)
  for _, block in ipairs(blocks) do
    local said, err = one(place, block, printed)
    if not said then return nil, ("line %d: the block %s"):format(block.line, err) end
    printed = said
  end
  return #blocks
end

return docs
