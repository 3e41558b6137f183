--- neap tune: many versions of a policy's numbers on one log, and which are worth having.
--
--   this process      candidates 1, 1 + n, …   in passes over the log, some lanes at once
--   n - 1 others      the rest: the same command with NEAP_TUNE_PART set, which answers counts
--
--- Exit status: 0 done; 1 a log or the policy cannot be read; 2 the command line is wrong.

local core = require "neap.core"
local json = require "neap.cmd.json"
local readers = require "neap.cmd.readers"
local replay = require "neap.cmd.replay"
local write_file = require "neap.cmd.write_file"

local tune = {}

local OK, FAILED, USAGE = 0, 1, 2
local LANES, MOST_LANES_OF_STDIN = 20, 60
local MOST_JOBS = 64
local PART = "NEAP_TUNE_PART"

--- The options that say what is read, as of neap replay.
local function of_replay(names)
  local list = {}
  for _, name in ipairs(names) do
    for _, option in ipairs(replay.specs.replay) do
      if option.name == name then list[#list + 1] = option end
    end
  end
  return list
end

local SPEC = {
  { name = "policy", value = "FILE", example = "policies/payments.lua",
    help = "whose numbers are varied" },
  { name = "vary", value = "KEY=VALUES", example = "trip.failure_rate=0.2..0.8", many = true,
    help = "a key of the policy, and its values: LO..HI, LO..HI:STEP,\n"
      .. "or A,B,C; none: without it; of several every combination" },
}
for _, option in ipairs(of_replay { "params", "format", "log-format", "map", "key", "of", "seed" })
do
  SPEC[#SPEC + 1] = option
end
SPEC[#SPEC + 1] = { name = "jobs", value = "N", example = "2",
  read = readers.whole(1, MOST_JOBS, ""),
  help = "so many at once; as many as processors if not given" }
SPEC[#SPEC + 1] = { name = "json", help = "every version as JSON" }
SPEC[#SPEC + 1] = { name = "html", value = "FILE", example = "tune.html",
  help = "a page with a plot, besides" }

tune.specs = { tune = SPEC }

tune.help = { tune = [[
neap tune: which thresholds last week's log would have asked for

  neap tune LOG... --policy FILE --vary KEY=VALUES [options]

Replays the log through the policy with every combination of the values, and shows those of which
none is beaten: no other spares more waiting and costs fewer good calls. One of them is recommended,
with what speaks for it, unless the log is too little to say so: 1,000 calls and 30 failures at
least. The policy as it is takes part. What the first two thirds of the log's time would have chosen
is tried on the rest, as a check.

%s

What can be varied are the numbers of window, trip, open and half_open, and timeout_ms.

Exit status: 0 done, 1 a log or the policy cannot be read, 2 the command line is wrong.

Examples:

  neap tune access.log --policy policies/http_upstream.lua --vary trip.failure_rate=0.2..0.8
  neap tune access.log.*.gz --policy now.lua --vary trip.consecutive_failures=none,3,5,10 \
    --vary open.cooldown_ms=1000..30000:1000 --html tune.html
]] }

local function usage(host, message)
  local see = message:find("%?$") and " See" or "; see"
  host.err(("neap tune: %s%s neap tune --help\n"):format(message, see))
  return USAGE
end

local function fail(host, message)
  host.err(("neap tune: %s\n"):format(message))
  return FAILED
end

-- ---- Passes -----------------------------------------------------------------------------------

--- The candidates of a part: every n-th, so that all parts take about as long.
local function share_of(candidates, part, parts)
  local own = {}
  for i = part, #candidates, parts do
    own[#own + 1] = { number = i, candidate = candidates[i] }
  end
  return own
end

local COUNTS = {
  "opened", "lost", "cut_good", "saved", "saved_ms", "cut_ms", "refused", "open_ms",
  "refused_unknown", "calls", "failure",
}

--- What a lane came to, and had come to by the end of the first part, if the log is parted.
local function counts_of(result, number, first)
  local counts, by_then = {}, first and {} or nil
  for _, name in ipairs(COUNTS) do
    counts[name] = result.lanes[number].all[name]
    if first then by_then[name] = first(number, name) end
  end
  return { all = counts, first = by_then }
end

--- Replays some candidates, as many at once as have room: their counts, by number; and what was
--- read.  Or nil and what is wrong.
local function replay_all(given, policy, own, step)
  local lab, holdout = require "neap.lab.replay", require "neap.lab.holdout"
  local found, source = {}, nil
  local lanes_at_once = given[1] == "-" and #own or LANES
  local passes = math.ceil(#own / lanes_at_once)
  for pass = 1, passes do
    local opened, message = replay.open(given)
    if not opened then return nil, message end
    local lanes, first = {}, (pass - 1) * lanes_at_once
    for i = first + 1, math.min(#own, first + lanes_at_once) do
      local candidate = own[i].candidate
      lanes[#lanes + 1] = {
        policy = policy, rules = candidate.rules, timeout_ms = candidate.timeout_ms,
      }
    end
    local result = lab.run(opened, lanes, {
      of = given.of, seed = given.seed, transitions = 0, marks = true,
      progress = function(read, size, calls)
        step(size and (pass - 1) * size + read or read, size and passes * size, calls)
      end,
    })
    if result.source.calls == 0 or result.lanes[1].all.calls == 0 then
      return nil, replay.nothing_read(result, given.of or policy.name)
    end
    local until_ms, by_then = holdout.part(result)
    for i = 1, #lanes do found[own[first + i].number] = counts_of(result, i, by_then) end
    source = result.source
    source.until_ms = until_ms
    source.late = result.lanes[1].late
  end
  return found, source
end

-- ---- Several at once --------------------------------------------------------------------------

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function map_text(map)
  return ("%s=%s%s"):format(map.role, map.name, map.unit and ":" .. map.unit or "")
end

--- The command line that this one was, but for what only prints.
local function command_line(program, given)
  local words = { program, "tune" }
  for _, option in ipairs(SPEC) do
    local value = given[option.name]
    local is_print = option.name == "json" or option.name == "html" or option.name == "jobs"
    if value ~= nil and not is_print then
      for _, one in ipairs(option.many and value or { value }) do
        local text = type(one) == "table" and map_text(one)
          or type(one) == "number" and ("%.0f"):format(one) or one
        words[#words + 1] = ("--%s=%s"):format(option.name, text)
      end
    end
  end
  words[#words + 1] = "--"
  for _, log in ipairs(given) do words[#words + 1] = log end
  for i, word in ipairs(words) do words[i] = quoted(word) end
  return table.concat(words, " ")
end

--- This program, as it was called; nil where nobody can say.
local function program()
  local file = io.open("/proc/self/cmdline", "rb")
  if not file then return nil end
  local word = file:read("a"):match("^[^%z]+")
  file:close()
  return word
end

local function processors()
  local pipe = io.popen("nproc 2>/dev/null")
  local n = pipe and tonumber(pipe:read("a"))
  if pipe then pipe:close() end
  return math.max(1, math.min(MOST_JOBS, math.floor(n or 1)))
end

--- How many processes work on it: one where the log can be read only once, or there is little to
--- do.
local function jobs_for(given, host, count)
  if not host.owns_state or given[1] == "-" then return 1 end
  return math.min(given.jobs or processors(), math.ceil(count / 2))
end

--- Starts the other parts; what they find is read from their pipes.
local function start(given, jobs)
  local pipes, name = {}, jobs > 1 and program()
  for part = 2, name and jobs or 1 do
    local line = ("%s=%d/%d %s </dev/null 2>/dev/null"):format(PART, part, jobs,
      command_line(name, given))
    pipes[#pipes + 1] = assert(io.popen(line))
  end
  return pipes, #pipes + 1
end

--- Adds what the others found.
local function collect(pipes, found)
  local all_well = true
  for _, pipe in ipairs(pipes) do
    local text = pipe:read "a"
    all_well = pipe:close() and all_well
    for _, one in ipairs(all_well and assert(json.decode(text)) or {}) do
      found[one.number] = one.counts
    end
  end
  return all_well
end

-- ---- The command ------------------------------------------------------------------------------

local function usage_fault(given)
  if not given[1] then
    return "which log? E.g. neap tune access.log --policy payments.lua --vary "
      .. "trip.failure_rate=0.2..0.8"
  end
  if not given.policy then return "which policy? E.g. --policy policies/payments.lua" end
  if not given.vary then return "what is to be varied? E.g. --vary trip.failure_rate=0.2..0.8" end
  if given.format and given["log-format"] then return "give either --format or --log-format" end
  for i, log in ipairs(given) do
    if log == "-" and #given > 1 then return ("log %d is -, and there are others"):format(i) end
  end
end

--- What every candidate came to, as neap.lab.tune_report takes it; nil and what is wrong.
local function sweep(given, host, policy, candidates, part, parts)
  local progress = require("neap.lab.progress").new(host, "calls")
  local found, source = replay_all(given, policy, share_of(candidates, part, parts), progress.step)
  progress.stop()
  return found, source
end

--- A part of another's: its counts, and nothing else.
local function serve_part(given, host, policy, candidates, part, parts)
  local found, message = sweep(given, host, policy, candidates, part, parts)
  if not found then return fail(host, message) end
  local list = {}
  for number, counts in pairs(found) do list[#list + 1] = { number = number, counts = counts } end
  host.out(json.encode(json.list(list)) .. "\n")
  return OK
end

local function read_varied(given, host)
  local lab, varied = require "neap.lab.tune", {}
  for i, text in ipairs(given.vary) do
    local one, message = lab.vary(text)
    if not one then return nil, usage(host, ("--vary %s: %s"):format(text, message)) end
    varied[i] = one
  end
  return varied
end

local function show(given, host, result)
  local report = require "neap.lab.tune_report"
  host.out(given.json and report.json(result) or report.text(result))
  if not given.html then return OK end
  local ok, message = write_file(given.html, report.html(result))
  return ok and OK or fail(host, message)
end

--- Tries all candidates, here and in other processes, and says what they came to.
local function try(given, host, policy, varied, candidates, left_out)
  local lab = require "neap.lab.tune"
  local pipes, parts = start(given, jobs_for(given, host, #candidates))
  local found, source = sweep(given, host, policy, candidates, 1, parts)
  local all_well = collect(pipes, found or {})
  if not found then return fail(host, source) end
  if not all_well then return fail(host, "a part of it failed; --jobs 1 does without parts") end
  local rows, damaged = {}, 0
  for i, candidate in ipairs(candidates) do
    rows[i] = lab.row(candidate, found[i].all)
    rows[i].first = found[i].first
  end
  for _, one in ipairs(source.damaged) do damaged = damaged + one.count end
  local verdict = lab.judge(rows, varied)
  local set_back = require("neap.lab.replay_rows").set_back(source.late, rows[1].calls)
  verdict.cautions[#verdict.cautions + 1] = set_back
  return show(given, host, {
    policy = policy.name, path = policy.path, varied = varied, rows = rows,
    verdict = verdict, left_out = left_out,
    checked = require("neap.lab.holdout").check(rows, varied, verdict.chosen, source.until_ms),
    log = { calls = rows[1].calls, from_ms = source.from_ms, to_ms = source.to_ms,
      damaged = damaged },
  })
end

--- Runs it.
---@param given table as neap.cmd.options read it
---@param host neap.cmd.host
---@return integer exit_status
function tune.run(_, given, host)
  local fault = usage_fault(given)
  if fault then return usage(host, fault) end
  local varied, status = read_varied(given, host)
  if not varied then return status end
  if host.owns_state then core.harden() end
  local lanes, errors = replay.load_lanes { policy = { given.policy }, params = given.params }
  if not lanes then
    for _, line in ipairs(errors) do host.err("neap tune: " .. line .. "\n") end
    return FAILED
  end
  local policy = lanes[1].policy
  local candidates, left_out = require("neap.lab.tune").candidates(policy, varied)
  if not candidates then return usage(host, left_out) end
  if given[1] == "-" and #candidates > MOST_LANES_OF_STDIN then
    return usage(host, ("standard input can be read once only: %d versions at most, not %d"):format(
      MOST_LANES_OF_STDIN, #candidates))
  end
  local part, parts = (host.env(PART) or ""):match("^(%d+)/(%d+)$")
  if part then
    return serve_part(given, host, policy, candidates, math.tointeger(part), math.tointeger(parts))
  end
  return try(given, host, policy, varied, candidates, left_out)
end

return tune
