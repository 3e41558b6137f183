--- Runs a document: its code blocks, from top to bottom, in a copy of the project.
---
---   ```sh           run; it must succeed within a minute.  "make run" starts the demo, on ports of
---                   its own; after a reload of nginx or HAProxy the next block finds it done
---   ```lua          run by the interpreter
---   ```lua policy   a policy file: it must load
---   ```lua rules    keys of a policy: put into one that has the rest, they must load
---   ```c            compiled and, if there is a main, run
---   ```nginx        its configuration, or a part of it: written to a file, for a ```sh to use
---   ```haproxy      the same
---   ```text         nothing
---
--- A first line that is a comment with a file's name writes the block to that file: then Lua and C
--- are only written. An HTML comment just before a block says more about it:
---
---   <!-- printed -->           it is what the block before it printed
---   <!-- file: PATH -->        it is that file, word for word, and is not run
---   <!-- as written -->        it is not run: it needs more than a test has
local free_ports = require "tests.support.ports"

local docs = {}

---@class docs.block
---@field line integer   of its first line of code
---@field info string    what stands after the fence
---@field text string
---@field indent string  of the block itself, in a list
---@field note string?   the HTML comment just before it

--- The fenced blocks of a Markdown text, in order.
---@return docs.block[]
function docs.blocks(markdown)
  local blocks, block, note, line = {}, nil, nil, 0
  for text in (markdown .. "\n"):gmatch("(.-)\n") do
    line = line + 1
    if block and text:match("^%s*```%s*$") then
      block.text = table.concat(block, "\n") .. "\n"
      blocks[#blocks + 1], block, note = block, nil, nil
    elseif block then
      block[#block + 1] = text:gsub("^" .. block.indent, "")
    elseif text:match("^%s*```") then
      local indent, info = text:match("^(%s*)```%s*(.-)%s*$")
      block = { line = line + 1, info = info, indent = indent, note = note }
    elseif text:match("%S") then
      note = text:match("^<!%-%-%s*(.-)%s*%-%->$")
    end
  end
  assert(not block, "a block is not closed")
  return blocks
end

-- Files and commands -----------------------------------------------------------------------------

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

-- The place --------------------------------------------------------------------------------------

--- A directory with all of the project that documents speak of; policies and examples are copies,
--- to be edited.
function docs.workplace(root, build)
  local dir = os.tmpname()
  os.remove(dir)
  local linked = "core lua tests docs scripts README.md Makefile CMakeLists.txt"
    .. " LICENSE neap-scm-1.rockspec"
  local make = "mkdir %s && cp -r policies examples %s && for i in %s; do ln -s $PWD/$i %s; done"
  assert(sh(root, make:format(dir, dir, linked, dir)))
  return { dir = dir, root = root, build = build, lua = os.getenv("LUA") or "lua5.4" }
end

--- Stops what runs there, and removes it.
function docs.remove(place)
  if place.demo then
    local stop = "kill %s; while kill -0 %s 2>/dev/null; do sleep 0.05; done"
    sh("/", stop:format(place.demo, place.demo))
  end
  for _, server in ipairs { "nginx", "haproxy" } do
    sh(place.dir, ("test ! -s %s.pid || kill $(cat %s.pid)"):format(server, server))
  end
  if place.panel then sh("/", "rm -f " .. place.panel .. ".v*") end
  sh("/", "rm -rf " .. quoted(place.dir))
end

--- `make run`, with the program that is built, on free ports; waits until it answers.
local function start_demo(place)
  local ports = free_ports(5)
  place.ports = {
    ["8016"] = ports[1], ["8080"] = ports[2], ["9464"] = ports[3],
    ["8081"] = ports[4], ["9465"] = ports[5], -- of another one
  }
  local ok, said = sh(place.dir, ([[
    NEAP_BIN=%s/bin/neap UPSTREAM_PORT=%d LISTEN_PORT=%d ADMIN_PORT=%d make -s run >run.log 2>&1 &
    echo $! >run.pid
    for i in $(seq 100); do
      curl -sf localhost:%d/healthz >/dev/null && exit 0
      sleep 0.1
    done
    cat run.log
    exit 1]]):format(quoted(place.build), ports[1], ports[2], ports[3], ports[3]))
  place.demo = read(place.dir .. "/run.pid"):match("%d+")
  return ok, said
end

-- What runs a block ------------------------------------------------------------------------------

local run = {}

--- The name in a first line that is nothing but a comment with a file's name.
local function file_named(text)
  local name = "([%w_./-]+%.%w+)"
  return text:match("^%-%- " .. name .. "\n") or text:match("^/%* " .. name .. " %*/\n")
    or text:match("^# " .. name .. "\n")
end

local function put(place, name, text)
  sh(place.dir, "mkdir -p " .. quoted(name:match("^(.*)/") or "."))
  write(place.dir .. "/" .. name, text)
  return name
end

local ASKS = { status = true, mode = true, trip = true, reset = true, params = true }

--- Commands that ask the sidecar are told where it is.
local function told_where(place, text)
  local port = place.ports and place.ports["9464"]
  return (text:gsub("%f[%w]neap (%l+)([^\n|]*)", function(command, rest)
    if not port or not ASKS[command] or rest:find("--admin", 1, true) then return nil end
    return ("neap %s --admin 127.0.0.1:%d%s"):format(command, port, rest)
  end))
end

--- A reload is told to a server's first process; it is done when those below it are others.
local function reload(place, server)
  return sh(place.dir, ([[
    below() { for one in $(pgrep -P $(cat %s.pid)); do echo " $one "; done; }
    before=$(below)
    PATH=%s/bin:$PATH timeout 60 sh -eu .block.sh || exit
    for i in $(seq 300); do
      now=$(below)
      [ -n "$now" ] && ! echo "$before" | grep -qF -e "$now" && exit
      sleep 0.1
    done
    echo "what was there before the reload has not ended"
    exit 1]]):format(server, quoted(place.build)))
end

function run.sh(place, block)
  if block.text:match("^make run ?&?\n$") then return start_demo(place) end
  put(place, file_named(block.text) or ".block.sh", block.text)
  if file_named(block.text) then return true, "" end
  for port, own in pairs(place.ports or {}) do
    block.text = block.text:gsub(":" .. port, ":" .. own)
  end
  block.text = told_where(place, block.text:gsub("/dev/shm/neap", place.panel or "%0"))
  write(place.dir .. "/.block.sh", block.text)
  local server = block.text:find(" -s reload\n", 1, true) and "nginx"
    or block.text:find("kill -USR2 $(cat haproxy.pid)\n", 1, true) and "haproxy"
  if server then return reload(place, server) end
  local run_it = "PATH=%s/bin:$PATH timeout 60 sh -eu .block.sh"
  return sh(place.dir, run_it:format(quoted(place.build)))
end

--- Where nginx finds neap that is not installed, and may write.
local function nginx_paths(place)
  local lines = {
    ('lua_package_path "%s/lua/?.lua;%s/lua/?/init.lua;;";'):format(place.root, place.root),
    ('lua_package_cpath "%s/lua5.1/?.so;;";'):format(place.build),
  }
  for _, kind in ipairs { "client_body", "proxy", "fastcgi", "uwsgi", "scgi" } do
    lines[#lines + 1] = ("%s_temp_path %s/temp-%s;"):format(kind, place.dir, kind)
  end
  return table.concat(lines, " ")
end

--- The text of a server's configuration with ports and a panel of its own.
local function own(place, text)
  if not place.panel then
    local ports = free_ports(6)
    place.ports = {
      ["8080"] = ports[1], ["8016"] = ports[2], ["8017"] = ports[3], ["8018"] = ports[4],
      ["8019"] = ports[5], ["8020"] = ports[6],
    }
    place.panel = "/dev/shm/" .. place.dir:match("[^/]+$")
  end
  return text:gsub("%f[%d](%d%d%d%d)%f[%D]", place.ports):gsub("/dev/shm/neap", place.panel)
end

--- As it is, but for what is its own, and where neap and nginx's modules are.
function run.nginx(place, block)
  local name = assert(file_named(block.text), "nginx: the first line is to be a file's name")
  local _, modules = sh("/", "nginx -V 2>&1 | tr ' ' '\\n' | sed -n 's/^--modules-path=//p'")
  local text = own(place, block.text):gsub("/usr/lib/nginx/modules", modules:match("%S+"))
    :gsub("http {", function(found) return found .. " " .. nginx_paths(place) end)
  put(place, name, text)
  return true, ""
end

--- As it is, but for what is its own, and where neap is.
function run.haproxy(place, block)
  local name = assert(file_named(block.text), "haproxy: the first line is to be a file's name")
  local paths = ("global\n  lua-prepend-path %s/lua/?.lua\n  lua-prepend-path %s/lua/?/init.lua\n"
    .. "  lua-prepend-path %s/lua5.3/?.so cpath\n"):format(place.root, place.root, place.build)
  put(place, name, (own(place, block.text):gsub("\nglobal\n", function() return "\n" .. paths end)))
  return true, ""
end

function run.lua(place, block)
  local name = file_named(block.text)
  put(place, name or ".block.lua", place.panel and own(place, block.text) or block.text)
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
  local name = block.text:match('name = "([%w_]+)"') or "unnamed"
  return check_policy(place, put(place, file_named(block.text) or name .. ".lua", block.text))
end

run["lua rules"] = function(place, block)
  local given = block.text:gsub("%s*$", ""):gsub(",?$", ",")
  local trip = given:find("trip%s*=") and "" or " trip = { failures = 5 },"
  local policy = ('return { name = "rules",%s\n%s\n}'):format(trip, given)
  return check_policy(place, put(place, ".block/rules.lua", policy))
end

function run.c(place, block)
  local name = file_named(block.text)
  put(place, name or ".block.c", block.text)
  if name then return true, "" end
  local rest = block.text:find("int main", 1, true)
    and ("-o .block %s/core/libneap.a && ./.block"):format(quoted(place.build)) or "-fsyntax-only"
  return sh(place.dir,
    "cc -std=gnu11 -Wall -Wextra -Werror -Icore/include -Ilua/engine/include .block.c " .. rest)
end

-- Documents --------------------------------------------------------------------------------------

local not_run = { [""] = true, text = true, json = true, yaml = true, cmake = true }

--- Answers what the block printed, or nil and what is wrong.
local function run_block(place, block, printed)
  local note = block.note or ""
  local path = note:match("^file: (.+)$")
  if path and read(place.root .. "/" .. path) ~= block.text then
    return nil, "is not what " .. path .. " says"
  end
  if note == "printed" and printed ~= block.text then
    return nil, "is not what was printed, which is:\n" .. printed
  end
  if path or note == "as written" or not_run[block.info] then return printed end
  local how = run[block.info]
  if not how then return nil, ("is in a language that is not known, %q"):format(block.info) end
  local ok, said = how(place, block)
  if not ok then return nil, "failed:\n" .. said end
  return said
end

--- Runs all blocks of `markdown`; answers how many, or nil and what is wrong where.
function docs.run(place, markdown)
  local printed = ""
  local blocks = docs.blocks(markdown)
  for _, block in ipairs(blocks) do
    local said, err = run_block(place, block, printed)
    if not said then return nil, ("line %d: the block %s"):format(block.line, err) end
    printed = said
  end
  return #blocks
end

return docs
