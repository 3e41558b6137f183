--- A table of what each operation costs here, beside the floors it stands on, measured in the same
--- rounds.
--
--   lua5.4 tests/bench/bench.lua BUILD [--json] [--peers] [--rounds=11]
--
-- Nanoseconds per operation (and caller): the median of the rounds, and their smallest and largest.
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/?.lua;" .. package.path
local run = require "run"

local options = { rounds = 11 }
for i = 2, #arg do
  local key, value = arg[i]:match("^%-%-(%w+)=?(.*)$")
  if not key then error(arg[i] .. ": must be --json, --peers or --rounds=N", 0) end
  options[key] = value == "" and true or math.tointeger(value)
end

-- ---- what ----

--- { title, { rows } }; a row is { name in what the programs print, what to call it, its floor }.
local sections = {
  { "Floors", {
    { "floor empty call", "a call that returns at once" },
    { "floor two empty calls", "two, as a pair makes" },
    { "floor fetch_add", "fetch_add" },
    { "floor compare-and-swap", "load and compare-and-swap" },
    { "floor coarse clock", "CLOCK_MONOTONIC_COARSE" },
    { "floor precise clock", "CLOCK_MONOTONIC" },
    { "floor robust mutex", "robust process-shared mutex" },
    { "floor fetch_add, 2 threads", "fetch_add, 2 threads on one word" },
    { "floor fetch_add, 2 processes", "fetch_add, 2 processes on one word" },
    { "floor compare-and-swap, 2 threads", "compare-and-swap, 2 threads on one word" },
    { "floor robust mutex, 2 threads", "robust mutex, 2 threads" },
  } },
  { "Breaker shared by threads and processes", {
    { "shared acquire", "acquire, closed", "floor empty call" },
    { "shared pair", "acquire and report a success", "floor compare-and-swap" },
    { "shared pair, coarse clock", "... reading the coarse clock", "floor coarse clock" },
    { "shared pair, precise clock", "... reading the precise clock", "floor precise clock" },
    { "shared pair, of 20 ms", "... of a call that took 20 ms", "shared pair" },
    { "shared pair, 10 % fail", "... one of ten a failure", "shared pair" },
    { "shared pair, last 100 calls", "... window of the last 100 calls", "shared pair" },
    { "shared pair, new slice", "... the first in a new slice", "shared pair" },
    { "shared pair, new slice, failures in it", "... with failures in the window",
      "shared pair" },
    { "shared pair, all expired", "... after the whole window expired", "shared pair" },
    { "shared refusal", "refusal, open", "floor empty call" },
    { "shared refusal, coarse clock", "... reading the coarse clock", "floor coarse clock" },
    { "shared refusal, counted", "refusal, counted", "floor fetch_add" },
    { "shared refusal, counted, coarse clock", "... reading the coarse clock",
      "floor coarse clock" },
    { "shared probe", "half-open probe and its report", "floor compare-and-swap" },
    { "shared trip, probe and close", "open, half-open, closed again", "floor compare-and-swap" },
    { "shared pair, 2 threads", "pair, 2 threads on one breaker", "floor fetch_add, 2 threads" },
    { "shared pair, 2 processes", "pair, 2 processes on one breaker",
      "floor fetch_add, 2 processes" },
    { "floor engine under robust mutex, 2 threads", "the local engine under a robust mutex",
      "floor fetch_add, 2 threads" },
    { "shared pair, 2 threads, own breakers", "pair, 2 threads, each its own", "shared pair" },
  } },
  { "Breaker of one thread (NEAP_ATOMICS=OFF)", {
    { "local pair", "acquire and report a success", "floor fetch_add" },
    { "local pair, coarse clock", "... reading the coarse clock", "floor coarse clock" },
    { "local pair, 10 % fail", "... one of ten a failure", "local pair" },
    { "local pair, last 100 calls", "... window of the last 100 calls", "local pair" },
  } },
  { "Many breakers", {
    { "floor touch, 1e6 at random", "adding 1 to one of 1e6 at random" },
    { "shared pair, 1e6 at random", "pair on one of 1e6 at random", "floor touch, 1e6 at random" },
    { "shared pair, 1 of 1e6", "pair on one and the same", "floor touch, 1e6 at random" },
    { "name lookup, 10,000 names", "looking up one of 10,000 names" },
  } },
  { "Lua 5.4", {
    { "floor two empty methods and a Lua call", "two empty methods and a Lua call" },
    { "floor pcall and an empty method", "pcall and an empty method" },
    { "guard acquire and report", "guard:acquire and guard:report",
      "floor two empty methods and a Lua call" },
    { "guard call", "guard:call", "floor pcall and an empty method" },
    { "guard call, classified", "... with the policy's classify",
      "floor pcall and an empty method" },
    { "guard call, refused", "... refused", "floor pcall and an empty method" },
    { "breaker acquire and report", "neap.core's breaker: acquire and report",
      "floor two empty methods and a Lua call" },
  } },
}

--- { name, what to call it, unit }, the unit being at the end of the name.
local sidecar = {
  { "direct p50 us", "median at 1,000 requests/s: no proxy" },
  { "nginx p50 us", "... nginx proxy_pass" },
  { "neap p50 us", "... neap" },
  { "direct req/s", "saturated: no proxy" },
  { "nginx req/s", "... nginx proxy_pass" },
  { "neap req/s", "... neap" },
  { "neap refused req/s", "... neap, refused" },
  { "neap last_good req/s", "... neap, last good answer" },
  { "neap cpu us", "neap's processor time: proxied" },
  { "neap refused cpu us", "... refused" },
  { "neap last_good cpu us", "... last good answer" },
}

local replay = {
  { "replay csv calls/s", "CSV, a shipped classifier" },
  { "replay access log calls/s", "... access log, combined" },
  { "replay json calls/s", "... JSON lines" },
  { "replay own classify calls/s", "CSV, a classify of the policy's own" },
  { "replay own key calls/s", "access log, a key of the policy's own" },
}

local peers = {
  { "eapache go-resiliency: closed", "go-resiliency (Go): closed" },
  { "eapache go-resiliency: 10 % fail", "... one of ten a failure" },
  { "eapache go-resiliency: refused", "... refused" },
  { "python3-circuitbreaker: closed", "circuitbreaker (Python): closed" },
  { "python3-circuitbreaker: refused", "... refused" },
  { "cockatiel 3.2.1: closed", "cockatiel 3.2.1 (Node), less a bare await: closed" },
  { "cockatiel 3.2.1: 10 % fail", "... one of ten a failure" },
  { "cockatiel 3.2.1: refused", "... refused" },
  { "opossum 9.0.0: closed", "opossum 9.0.0 (Node), less a bare await: closed" },
  { "opossum 9.0.0: 10 % fail", "... one of ten a failure" },
  { "opossum 9.0.0: refused", "... refused" },
}
if options.peers then sections[#sections + 1] = { "Peers", peers } end

local function measure()
  local found = {}
  local programs = {
    { run.program "bench_core", options.rounds },
    { run.program "bench_memory", options.rounds },
    run.script("lua5.4", "lua.lua", "time", options.rounds),
    { "sh", here .. "/sidecar.sh", run.build(), 3 },
    { "lua5.4", here .. "/replay.lua", run.build(), 3 },
  }
  if options.peers then
    programs[#programs + 1] = { "sh", here .. "/peers/peers.sh", run.build(), options.rounds }
  end
  for _, words in ipairs(programs) do
    for name, summary in pairs(run.measurements(words)) do found[name] = summary end
  end
  return found
end

-- ---- how it looks ----

local function short(ns)
  if ns < 10 then return ("%.2f"):format(ns) end
  return (ns < 100 and "%.1f" or "%.0f"):format(ns)
end

local function print_table(found)
  for _, section in ipairs(sections) do
    print(("\n%-50s %9s   %-17s %s"):format(section[1], "ns", "min .. max", "of"))
    for _, row in ipairs(section[2]) do
      local m, floor = found[row[1]], found[row[3]]
      local of = ""
      if floor then
        of = ("%6.2f x %s"):format(m.median / floor.median, (row[3]:gsub("^floor ", "")))
      end
      print(("  %-48s %9s   %-17s %s"):format(row[2], short(m.median),
        short(m.min) .. " .. " .. short(m.max), of))
    end
  end
end

local function print_rows(title, rows, found)
  print(("\n%-50s %9s   %s"):format(title, "", "min .. max"))
  for _, row in ipairs(rows) do
    local m = found[row[1]]
    print(("  %-48s %9s   %-17s %s"):format(row[2], short(m.median),
      short(m.min) .. " .. " .. short(m.max), row[1]:match("%S+$")))
  end
end

local function print_json(found)
  local lines = {}
  for name, m in pairs(found) do
    lines[#lines + 1] = ('  "%s": { "median": %.3f, "min": %.3f, "max": %.3f }'):format(
      name, m.median, m.min, m.max)
  end
  table.sort(lines)
  print("{\n" .. table.concat(lines, ",\n") .. "\n}")
end

local found = measure()
if options.json then
  print_json(found)
else
  print_table(found)
  print_rows("Sidecar, 16 connections", sidecar, found)
  print_rows("neap replay, one process", replay, found)
end
