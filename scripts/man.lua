--- Writes neap(1) from what `neap --help` and `neap COMMAND --help` say.
---
---   lua5.4 scripts/man.lua NEAP > FILE    NEAP is the program to ask
---
--- A help text is a title, usage lines, and blocks with empty lines between them. Options become a
--- list, other indented blocks are shown as they are, the rest is prose; what follows "Signals:",
--- "Exit status:" and "Examples:" goes to sections of their own.

local neap = assert(arg[1], "which program?")

local DATE = "January 1, 2026"
local COMMANDS = {
  "serve", "new", "check", "test", "replay", "tune", "simulate", "status", "top", "mode", "trip",
  "reset", "params", "queue",
}
local SECTIONS = {
  { title = "Signals", name = "SIGNALS" },
  { title = "Exit status", name = "EXIT STATUS" },
  { title = "Examples", name = "EXAMPLES" },
}

--- What it says to --help, of a command or of itself.
local function help_of(command)
  local pipe = assert(io.popen(("'%s' %s --help"):format(neap, command or "")))
  local text = pipe:read("a")
  assert(pipe:close(), neap)
  return text
end

local function blocks_of(text)
  local blocks, block = {}, nil
  for line in text:gmatch("(.-)\n") do
    if line == "" then
      block = nil
    elseif block then
      block[#block + 1] = line
    else
      block = { line }
      blocks[#blocks + 1] = block
    end
  end
  return blocks
end

-- Text -------------------------------------------------------------------------------------------

local page = {}
local function put(line) page[#page + 1] = line end

--- A line of prose.
local function escaped(text)
  text = text:gsub("\\", "\\e"):gsub("%-%-(%l)", "\\-\\-%1"):gsub("…", "...")
    :gsub("`(.-)`", "\\(lq%1\\(rq")
  return (text:gsub("^[.']", "\\&%0"))
end

--- A line as one would type it.
local function literal(text)
  return (text:gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("'", "\\(aq"):gsub("^%.", "\\&."))
end

--- The words of a usage line as arguments of one macro.
local function usage(words)
  local out = {}
  for word in words:gmatch("%S+") do
    local option = word:match("^%-%-(.*)")
    local optional = word:match("^%[(.*)%]$")
    out[#out + 1] = option and "Fl -" .. option or optional and "Op Ar " .. optional
      or word:find("^%u[%u|]*%f[^%u|]") and "Ar " .. word:gsub("%.%.%.$", " ...") or "Cm " .. word
  end
  return (table.concat(out, " "):gsub(" Op ", "\n.Op "))
end

--- One sentence to a line, as mdoc(7) wants it.
local function put_prose(block)
  local text = table.concat(block, " "):gsub("([.;]) +(%u)", "%1\n%2")
  for line in (text .. "\n"):gmatch("(.-)\n") do
    line = escaped(line)
    while #line > 78 do
      local at = line:sub(1, 78):match(".*() ")
      put(line:sub(1, at - 1))
      line = line:sub(at + 1)
    end
    put(line)
  end
end

local function put_options(block)
  put ".Bl -tag -width Ds"
  for _, line in ipairs(block) do
    local words, what = line:match("^  (%-%-%S+ ?%S*)%s%s+(.*)$")
    if words then put(".It " .. usage(words)) end
    put(escaped(what or line:match("^%s*(.*)")))
  end
  put ".El"
end

local function put_as_is(block)
  put ".Bd -literal -offset 2n"
  for _, line in ipairs(block) do put(literal((line:gsub("^  ", "")))) end
  put ".Ed"
end

local function put_block(block)
  if block[1]:find("^  %-%-") then
    put_options(block)
  elseif block[1]:find("^ ") then
    put_as_is(block)
  else
    if not page[#page]:find("^%.S[hs] ") then put ".Pp" end
    put_prose(block)
  end
end

-- Commands ---------------------------------------------------------------------------------------

--- A command's usage lines, its description, and what of it belongs to the page's sections.
local function read_command(name)
  local command = { name = name, text = {}, sections = {} }
  local blocks = blocks_of(help_of(name))
  command.title = blocks[1][1]:match("^neap %w+: (.*)$")
  command.usage = blocks[2]
  local section
  for i = 3, #blocks do
    local block = blocks[i]
    if not block[1]:find("^ ") then section = nil end
    for _, known in ipairs(SECTIONS) do
      local rest = block[1]:match("^" .. known.title .. ": ?(.*)$")
      if rest then
        block[1] = rest == "" and "" or ("neap %s: %s"):format(name, rest)
        section = {}
        command.sections[known.name] = section
      end
    end
    if block[1] ~= "" then table.insert(section or command.text, block) end
  end
  return command
end

local commands = {}
for i, name in ipairs(COMMANDS) do commands[i] = read_command(name) end

put '.\\" Written by scripts/man.lua from what neap --help says: make docs.'
put(".Dd " .. DATE)
put ".Dt NEAP 1\n.Os\n.Sh NAME\n.Nm neap"
put(".Nd " .. help_of():match("^neap: (.-)\n"))
put ".Sh SYNOPSIS"
for _, command in ipairs(commands) do
  for _, line in ipairs(command.usage) do
    put(".Nm\n." .. usage(line:match("^  neap (.*)$")))
  end
end
put ".Nm\n.Op Cm COMMAND\n.Fl -help\n.Nm\n.Fl -version"

put ".Sh DESCRIPTION"
for _, command in ipairs(commands) do
  put(".Ss neap " .. command.name .. ": " .. command.title)
  for _, block in ipairs(command.text) do put_block(block) end
end
for _, section in ipairs(SECTIONS) do
  put(".Sh " .. section.name)
  for _, command in ipairs(commands) do
    for _, block in ipairs(command.sections[section.name] or {}) do put_block(block) end
  end
end
put ".Sh SEE ALSO"
put "README.md, docs/policies.md, docs/operations.md, installed below share/doc/neap"

print(table.concat(page, "\n"))
