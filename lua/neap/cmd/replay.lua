--- neap replay: what a policy would have done to the calls in a log.
---
--- Exit status: 0 done; 1 a log or a policy cannot be read; 2 the command line is wrong.

local core = require "neap.core"
local params_file = require "neap.params_file"
local policy = require "neap.policy"
local policy_files = require "neap.policy_files"
local readers = require "neap.cmd.readers"
local settings = require "neap.settings"
local lines = require "neap.lines"
local suggest = require "neap.suggest"
local write_file = require "neap.cmd.write_file"

local replay = {}

local OK, FAILED, USAGE = 0, 1, 2

local FORMATS = { "combined", "json", "csv", "har", "recording" }
local UNITS = { "s", "ms", "us", "ns" }

--- "duration=took:ms" -> { role =, name =, unit = }
local function read_map(text)
  local role, name, unit = text:match("^([%w_]+)=([^:]+):?(.*)$")
  if not role then return nil, "must be ROLE=NAME or ROLE=NAME:UNIT, e.g. duration=took:ms" end
  local names = {}
  for i, known in ipairs(require("neap.lab.replay").roles) do names[i] = known.name end
  local is_known = false
  for _, known in ipairs(names) do is_known = is_known or known == role end
  if not is_known then
    return nil, ("there is no role %s%s"):format(role, suggest.hint(role, names))
  elseif #name > 47 then
    return nil, "the name has more than 47 letters"
  elseif unit ~= "" and not readers.one_of(table.unpack(UNITS))(unit) then
    return nil, "the unit must be s, ms, us or ns"
  end
  return { role = role, name = name, unit = unit ~= "" and unit or nil }
end

replay.specs = {
  replay = {
    { name = "policy", value = "FILE", example = "policies/payments.lua", many = true,
      help = "what is tried; a second one is compared with it" },
    { name = "params", value = "FILE", example = "params.lua", many = true,
      help = "as of neap serve: the policies' params" },
    { name = "format", value = "FORMAT", example = "json",
      read = readers.one_of(table.unpack(FORMATS)),
      help = "combined, json, csv, har or recording; found out if not given" },
    { name = "log-format", value = "TEXT", example = "'$msec $status $request_time'",
      help = "nginx's log_format or Apache's LogFormat, as it is configured" },
    { name = "map", value = "ROLE=NAME", example = "duration=took:ms", read = read_map,
      many = true, help = "what a field is called, and :UNIT (s, ms, us, ns) if it\n"
        .. "is not as the name says" },
    { name = "key", value = "NAME", example = "host",
      help = "the field, or role, that says whose breaker a call's is;\n"
        .. "the policy's key function if not given" },
    { name = "of", value = "POLICY", example = "payments",
      help = "of a recording: this policy's calls; the first --policy's\nif not given" },
    { name = "seed", value = "N", example = "1", read = readers.whole(0, 2 ^ 53, ""),
      help = "of the jitter; a recording's own if not given, else 0" },
    { name = "top", value = "N", example = "20", read = readers.whole(1, 100000, ""),
      help = "so many keys and transitions are shown; 20 if not given" },
    { name = "json", help = "the same as JSON" },
    { name = "html", value = "FILE", example = "replay.html",
      help = "a page with plots, besides" },
  },
}

replay.help = {
  replay = [[
neap replay: what a policy would have done to the calls in a log

  neap replay LOG... --policy FILE [options]

Puts the calls of an access log, in order, through the policy's breakers on a clock that runs as the
log does: when each would have opened, why, what that would have spared and what it would have cost.
Two policies are told side by side. LOG may be compressed (gzip), or - for standard input; several
are read as one, by time, in whatever order they are named.

%s

Formats, found out by the first lines unless --format or --log-format says:

  combined    access logs of nginx and Apache, common and combined, also with the host in front
  json        an object a line; Envoy's access log is one
  csv         with names in its first row
  har         what a browser saves; of any size
  recording   what neap serve --record writes: the only one that knows all a breaker saw

Names that logs have for these roles are known, status_code and latency_ms for instance; --map says
others: time (a call's end) or start, duration, status; request, or method, target and host;
upstream_response_time, upstream_status and upstream_addr, of which each upstream is a call; error,
code, grpc_status, retry_after, ended_by, response_flags. Lines that are damaged are counted and
shown.

Exit status: 0 done, 1 a log or a policy cannot be read, 2 the command line is wrong.

Examples:

  neap replay /var/log/nginx/access.log* --policy policies/http_upstream.lua
  neap replay access.log --policy now.lua --policy next.lua --html replay.html
  neap replay access.log --policy now.lua \
    --log-format '$remote_addr [$time_local] "$request" $status $request_time $upstream_addr' \
    --key upstream_addr
  zcat calls.json.gz | neap replay - --policy now.lua --map duration=took:us --json
]],
}

-- ---- Policies ---------------------------------------------------------------------------------

--- The parameter files' values; nil and what is wrong.  One that is for other policies, too, is
--- fine.
local function read_params(paths)
  local files = {}
  for i, path in ipairs(paths or {}) do
    local text, message = core.read(path, 1024 * 1024)
    local value
    if text then value, message = params_file.parse(text, path) end
    if not value then return nil, message end
    files[i] = { path = path, value = value, lines = lines.of(text) }
  end
  return files
end

--- Two of one name are told apart by where they are.
local function labelled(lanes)
  if #lanes == 2 and lanes[1].policy.name == lanes[2].policy.name then
    for _, lane in ipairs(lanes) do lane.label = lane.policy.path end
    if lanes[1].label == lanes[2].label then lanes[2].label = lanes[2].label .. " again" end
  end
  return lanes
end

--- A lane for each policy; nil and the lines that say what is wrong.
---@param given table as neap.cmd.options read it
---@return neap.lab.replay.Lane[]|nil
---@return string[]|nil errors
function replay.load_lanes(given)
  local files, message = read_params(given.params)
  if not files then return nil, { message } end
  local names = policy_files.names_of(given.policy)
  local environment, problems = settings.environment(settings.variables(), names)
  local lanes, errors = {}, {}
  for _, one in ipairs(problems) do errors[#errors + 1] = tostring(one) end
  for i, path in ipairs(given.policy) do
    local loaded, err = policy.load(path, {
      settings = settings.for_policy(files, environment, names[i]),
    })
    for _, one in ipairs(err and (err.all or { err }) or {}) do
      errors[#errors + 1] = tostring(one)
    end
    lanes[i] = { policy = loaded }
  end
  if errors[1] then return nil, errors end
  return labelled(lanes)
end

-- ---- Running ----------------------------------------------------------------------------------

local function usage(host, message)
  host.err(("neap replay: %s; see neap replay --help\n"):format(message))
  return USAGE
end

local function fail(host, message)
  host.err(("neap replay: %s\n"):format(message))
  return FAILED
end

--- Opens the logs; nil and one line if that can't be.
---@param given table
---@return table|nil source
---@return string|nil message
function replay.open(given)
  local logs = {}
  for i, path in ipairs(given) do logs[i] = path end
  return require("neap.lab.replay").open {
    logs = logs, format = given.format, log_format = given["log-format"], maps = given.map,
    key = given.key,
  }
end

--- Nothing could be read of it: what is wrong, as far as that is known.
---@param result neap.lab.replay.Result
---@param of string the policy's name
---@return string
function replay.nothing_read(result, of)
  local others = result.lanes[1].others
  if others > 0 then
    return ("the recording has no call of the policy %s; --of says whose to take"):format(of)
  end
  local first = result.source.damaged[1]
  if not first then return "there is no call in it" end
  return ("no line can be read: line %d of %s is %s%s"):format(first.line, first.log, first.kind,
    first.text ~= "" and ": " .. first.text or "")
end

local function usage_fault(given)
  if not given[1] then return "which log? E.g. neap replay access.log --policy payments.lua" end
  if not given.policy then return "which policy? E.g. --policy policies/payments.lua" end
  if #given.policy > 2 then return "two policies can be compared, not " .. #given.policy end
  if given.format and given["log-format"] then return "give either --format or --log-format" end
end

--- Runs it.
---@param given table as neap.cmd.options read it
---@param host neap.cmd.host
---@param colours boolean
---@return integer exit_status
function replay.run(_, given, host, colours)
  local fault = usage_fault(given)
  if fault then return usage(host, fault) end
  if host.owns_state then core.harden() end
  local lanes, errors = replay.load_lanes(given)
  if not lanes then
    for _, line in ipairs(errors) do host.err("neap replay: " .. line .. "\n") end
    return FAILED
  end
  local lab = require "neap.lab.replay"
  local source, message = replay.open(given)
  if not source then return fail(host, message) end
  local progress = require("neap.lab.progress").new(host, "calls")
  local result = lab.run(source, lanes, {
    of = given.of, seed = given.seed, progress = progress.step,
  })
  progress.stop()
  if result.source.calls == 0 or result.lanes[1].all.calls == 0 then
    return fail(host, replay.nothing_read(result, given.of or lanes[1].policy.name))
  elseif given.key and result.source.keyed == 0 then
    return fail(host, ("--key %s: no call has such a field"):format(given.key))
  end
  local text = require "neap.lab.replay_text"
  host.out(given.json and text.json(result)
    or text.render(result, { top = given.top or 20, colours = colours }))
  if not given.html then return OK end
  local ok, why = write_file(given.html, require("neap.lab.replay_html").page(result))
  return ok and OK or fail(host, why)
end

return replay
