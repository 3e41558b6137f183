--- The neap command: from its arguments to an exit status, or to a plan for the program's C half to
--- carry out. Everything it needs of the system is handed in, so that all of it can be tested.

local develop = require "neap.cmd.develop"
local help = require "neap.cmd.help"
local log = require "neap.cmd.log"
local operate = require "neap.cmd.operate"
local options = require "neap.cmd.options"
local plans = require "neap.cmd.plan"
local queue = require "neap.cmd.queue"
local suggest = require "neap.suggest"
local top = require "neap.cmd.top"

local cmd = {}

local OK, FAILED, USAGE = 0, 1, 2

---@class neap.cmd.host
---@field version string
---@field wall_ms fun(): number
---@field uptime_ms fun(): number
---@field is_terminal fun(fd: 0|1|2): boolean
---@field owns_state? boolean     this Lua state is the command's alone: its strings may be hardened
---@field out? fun(text: string)  standard output
---@field err? fun(text: string)  standard error
---@field read? fun(): string?    a line of standard input
---@field env? fun(name: string): string?
---@field fetch? fun(method: string, url: string, token?: string, body?: string): integer?, string
---  status and body; or nil and why it could not be asked

local function usage(host, command, message)
  local see = message:find("%?$") and " See" or "; see"
  host.err(("neap%s: %s%s neap%s --help\n"):format(command, message, see, command))
  return USAGE
end

--- Colours are for a terminal whose user has not asked for none: https://no-color.org
local function has_colours(host, fd)
  local no = host.env("NO_COLOR")
  return host.is_terminal(fd) and (no == nil or no == "") and host.env("TERM") ~= "dumb"
end

local function open_log(host, format)
  return log.open {
    format = format, write = host.err, wall_ms = host.wall_ms, uptime_ms = host.uptime_ms,
    colours = format == "text" and has_colours(host, 2),
  }
end

local function serve(argv, host)
  local spec = plans.options
  local given, message = options.parse(spec, argv, 2)
  if not given then return usage(host, " serve", message) end
  if given.help then
    host.out(help.serve:format(options.usage(spec)))
    return OK
  end
  local plan, errors, is_usage = plans.make(given)
  if not plan then
    if is_usage then return usage(host, " serve", errors[1]) end
    for _, line in ipairs(errors) do host.err("neap serve: " .. line .. "\n") end
    return FAILED
  end
  plan.log = open_log(host, plan.log_format)
  return plan
end

local CHECK = {
  { name = "params", value = "FILE", example = "params.lua", many = true,
    help = "a Lua file that returns { POLICY = { … } }: the policies' params;\n"
      .. "of several, the later goes before" },
  { name = "json", help = "the same as JSON" },
}

local function check(argv, host)
  local given, message = options.parse(CHECK, argv, 2)
  if not given then return usage(host, " check", message) end
  if given.help then
    host.out(help.check:format(options.usage(CHECK)))
    return OK
  end
  if #given == 0 then return usage(host, " check",
    "which policies? Name files or directories, e.g. neap check policies") end
  if host.owns_state then require("neap.core").harden() end
  local checker = require "neap.check"
  local report = checker.run(given, { params = given.params })
  local render = given.json and checker.json or checker.text
  local out, err = render(report, { colours = has_colours(host, 1) })
  host.out(out)
  host.err(err)
  return report.ok and OK or FAILED
end

local COMMANDS = { serve = serve, check = check }

local function run_of(commands, name, argv, host)
  local spec = commands.specs[name]
  local given, message = options.parse(spec, argv, 2)
  if not given then return usage(host, " " .. name, message) end
  if given.help then
    host.out((commands.help or help)[name]:format(options.usage(spec)))
    return OK
  end
  return commands.run(name, given, host, has_colours(host, 1))
end

--- Those of modules of their own: they ask a neap that runs; are for those who write policies;
--- look after queues.
for _, commands in ipairs { operate, top, develop, queue } do
  for name in pairs(commands.specs) do
    COMMANDS[name] = function(argv, host) return run_of(commands, name, argv, host) end
  end
end

--- The lab is large, and of Lua 5.4 alone: it is loaded when it is asked for.
for _, name in ipairs { "replay", "simulate", "tune" } do
  COMMANDS[name] = function(argv, host)
    return run_of(require("neap.cmd." .. name), name, argv, host)
  end
end

local function command_names()
  local names = { "help", "version" }
  for name in pairs(COMMANDS) do names[#names + 1] = name end
  return names
end

local function help_for(argv, host)
  local command = argv[2]
  if command and COMMANDS[command] then return COMMANDS[command]({ command, "--help" }, host) end
  host.out(help.neap)
  return OK
end

--- Runs the command.
---@param argv string[]  without the program's name
---@param host neap.cmd.host
---@return integer|table status_or_plan  a plan: neap.cmd.plan
function cmd.main(argv, host)
  host.out = host.out or function(text) io.stdout:write(text) end
  host.err = host.err or function(text) io.stderr:write(text) end
  host.read = host.read or function() return io.read("*l") end
  host.env = host.env or os.getenv
  local command = argv[1]
  if command == nil then
    host.err(help.neap)
    return USAGE
  elseif command == "--version" then
    host.out("neap " .. host.version .. "\n")
    return OK
  elseif command == "--help" or command == "-h" or command == "help" then
    return help_for(argv, host)
  elseif COMMANDS[command] then
    return COMMANDS[command](argv, host)
  end
  local near = suggest.nearest((command:gsub("^%-+", "")), command_names())
  if near == "version" then near = "--version" end
  return usage(host, "", ("there is no command %q%s"):format(command, near
    and ("; did you mean neap %s?"):format(near) or ""))
end

return cmd
