--- The limits neap keeps, one line each:  NAME  measured  limit  holds|short; or, of what depends
-- on whoever else uses the machine:  NAME  measured  told.
--
--   lua5.4 tests/bench/gates.lua BUILD [--quick | --soak]
--
-- Instruction counts come from callgrind and are exact; the loop and the passing of arguments are
-- subtracted.  Times are judged only as ratios to a floor that was measured in the same rounds.
-- The machine may be shared: while somebody else keeps the other half of a processor busy, what has
-- much to do slows down more than what waits for a clock.  So a ratio that is short is measured
-- again some seconds later, up to nine times in all, and the best counts.
--
-- --quick: what does not depend on time.  --soak: the sidecar's memory over a million requests, and
-- nothing else.
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/?.lua;" .. package.path
local run = require "run"

local ROUNDS, TRIES, PAUSE_S = 11, 9, 4
local what = arg[2]

local short, total = 0, 0

--- One gate; is_least: the limit is a lower one.
local function line(name, measured, unit, limit, note, is_least)
  local holds
  if is_least then holds = measured >= limit else holds = measured <= limit end
  total = total + 1
  if not holds then short = short + 1 end
  local digits = measured % 1 == 0 and "%.0f" or "%.2f"
  print(("%-58s %14s  %s %-14s %s%s"):format(
    name, digits:format(measured) .. unit, is_least and ">=" or "<=",
    ("%.14g"):format(limit) .. unit, holds and "holds" or "short", note and "   " .. note or ""))
  io.stdout:flush()
end

--- What is told, and judged by nobody.
local function told(name, measured, note)
  print(("%-58s %14s  %-24s   %s"):format(name, measured, "told", note))
  io.stdout:flush()
end

-- ---- counts ----

local function counts()
  local count = run.callgrind { run.program "bench_count", "callgrind" }
  local calls = 10000
  -- An empty function is a single `ret`, which the path has too.
  local function gate(title, name, limit, base)
    base = base or "nothing pair"
    local rets = base == "nothing acquire" and 1 or 2
    line(title, ((count[name] - count[base]) / calls + rets) // 0.01 / 100, " instr", limit)
  end
  gate("1 acquire, closed", "shared acquire", 12, "nothing acquire")
  gate("2 local pair", "local pair", 75)
  gate("3 local pair, coarse clock", "local pair, coarse clock", 105, "nothing pair on")
  gate("4 shared pair", "shared pair", 80)
  gate("5 shared pair, coarse clock", "shared pair, coarse clock", 110, "nothing pair on")
  gate("8 refusal", "shared refusal", 25, "nothing acquire")
  gate("8 refusal, coarse clock", "shared refusal, coarse clock", 60, "nothing acquire")
  gate("11 pair in a new slice", "shared pair, new slice", 220)
  gate("12 pair, its calls in flight", "shared pair, in flight", 280)
  gate("13 acquire, past a ramp", "shared acquire, past a ramp", 75, "nothing acquire")
  gate("11 pair after all 16 slices expired", "shared pair, all expired", 200 + 20 * 16)

  local steps = run.measurements { run.program "bench_count", "step" }
  local function locked(title, name, limit)
    line(title .. ": locked instructions", steps[name].values[2], "", limit)
  end
  locked("4 shared pair", "shared pair", 1)
  locked("5 shared pair, coarse clock", "shared pair, coarse clock", 1)
  locked("1 acquire, closed", "shared acquire", 0)
  locked("8 refusal", "shared refusal", 0)

  local stores = run.measurements { run.program "bench_count", "stores" }
  line("1 acquire, closed: writes the breaker", stores["shared acquire"].median, "", 0)
  line("1 acquire, closed: reads the clock", stores["clock reads"].median, "", 0)
  line("8 refusal, not counted: writes the breaker", stores["shared refusal"].median, "", 0)
end

local function lua_counts()
  local count = run.callgrind(run.script("lua5.4", "lua.lua", "count"))
  local function gate(title, name, limit)
    line(title, (count[name] - count["floor empty loop"]) / 1000 // 1, " instr", limit)
  end
  gate("15 Lua: guard:acquire and :report", "guard acquire and report", 1600)
  gate("16 Lua: guard:call", "guard call", 1200)
  gate("17 Lua: bound closures", "bound acquire and report", 900)
  local bytes = run.measurements(run.script("lua5.4", "lua.lua", "bytes"))
  local function allocated(title, name) line(title, bytes[name].median, " B", 0) end
  allocated("15 Lua: guard:acquire and :report allocate", "guard acquire and report")
  allocated("16 Lua: guard:call allocates", "guard call")
  allocated("16 Lua: guard:call, classified, allocates", "guard call, classified")
  allocated("17 Lua: bound closures allocate", "bound acquire and report")
end

--- The same on LuaJIT, by the same C module: compiled code leaves its trace for each C function, so
--- it is no faster than the interpreter here.  What a pair by bound closures is made of, in
--- instructions compiled and not:
---
---     336  278  two empty closures and an empty call
---     201  201  calls into Lua for the closures' data, arguments and answers, the eight they need
---      63   63  neap_breaker_acquire and neap_breaker_report
---      44   44  two readings of the coarse clock
---      80   79  the rest: checks of both, a number into a permit and back, calls of the core
---
--- So 644 compiled, 586 not, is what this would cost if the rest were nothing.  One run in thirty
--- counts ten more, compiled.
local function luajit_counts(lua, row, bound)
  local count = run.callgrind(run.script(lua, "lua.lua", "count"))
  local bytes = run.measurements(run.script(lua, "lua.lua", "bytes"))
  local function instructions(name) return (count[name] - count["floor empty loop"]) / 1000 // 1 end
  local function gate(title, name, limit)
    title = ("%d %s: %s"):format(row, lua, title)
    line(title, instructions(name), " instr", limit)
    line(title .. ", allocate", bytes[name].median, " B", 0)
  end
  gate("bound closures", "bound acquire and report", bound)
  local least = instructions "floor ... that ask Lua what bound ones must"
  told(("%d %s: ... that only ask Lua what these must"):format(row, lua),
    ("%d instr"):format(least), "the floor")
  gate("guard:acquire and :report", "guard acquire and report", 1100)
  line(("%d %s: guard:call, classified, allocates"):format(row, lua),
    bytes["guard call, classified"].median, " B", 0)
end

--- What disturbs nginx only adds to what is counted, so the least of each counts; there are more
--- runs if one of them was too much.
local function nginx_counts()
  local least, more = {}, nil
  for _ = 1, 3 do
    local count = run.measurements { "sh", here .. "/nginx.sh", run.build(), "empty calls", "neap" }
    for name, of in pairs(count) do
      least[name] = math.min(least[name] or math.huge, of.median)
    end
    more = least["neap"] - least["empty calls"]
    if more <= 400 then break end
  end
  line("20 nginx: access and log, over empty functions", more, " instr", 400)
end

local function haproxy_counts()
  local count = run.measurements { "sh", here .. "/haproxy.sh", run.build() }
  local more = count["neap_acquire"].median - count["empty"].median
  line("21 HAProxy: acquire, over an action in Lua that is empty", more, " instr", 2500)
  line("21 ... of that action's cost", more / count["way"].median * 100, " %", 10)
end

-- ---- ratios ----

--- { title, what, { what it is measured against, summed }, limit }
---
--- The precise clock waits for all before it, and a swap where it says must wait for it: so the two
--- are one floor, in a loop together. The coarse one lets them overlap.
local ratios = {
  { "1 acquire, closed, of an empty call", "shared acquire", { "floor empty call" }, 1.5 },
  { "2 local pair, of fetch_add", "local pair", { "floor fetch_add" }, 0.75 },
  { "3 local pair, coarse clock, of the clock", "local pair, coarse clock",
    { "floor coarse clock" }, 2.2 },
  { "4 shared pair, of compare-and-swap", "shared pair", { "floor compare-and-swap" }, 1.6 },
  { "5 shared pair, coarse clock, of both", "shared pair, coarse clock",
    { "floor compare-and-swap", "floor coarse clock" }, 1.3 },
  { "6 shared pair, precise clock, of a swap that it picks", "shared pair, precise clock",
    { "floor precise clock picks a swap" }, 1.2 },
  { "7 shared pair, 10 % fail, of none fails", "shared pair, 10 % fail", { "shared pair" }, 2.0 },
  { "8 refusal, coarse clock, of the clock", "shared refusal, coarse clock",
    { "floor coarse clock" }, 1.8 },
  { "9 2 threads on one, of fetch_add by 2", "shared pair, 2 threads",
    { "floor fetch_add, 2 threads" }, 2.0 },
  { "9 2 threads on one, of a robust mutex", "shared pair, 2 threads",
    { "floor engine under robust mutex, 2 threads" }, 0.6 },
  { "9 2 processes on one, of 2 threads", "shared pair, 2 processes",
    { "shared pair, 2 threads" }, 1.15 },
  { "10 2 threads on their own, of one thread", "shared pair, 2 threads, own breakers",
    { "shared pair" }, 1.15 },
}

-- The last: 200 ns where pcall and an empty method take 51.
local lua_ratios = {
  { "15 Lua: guard:acquire and :report, of empty methods", "guard acquire and report",
    { "floor two empty methods and a Lua call" }, 1.9 },
  { "16 Lua: guard:call, of pcall and a method", "guard call",
    { "floor pcall and an empty method" }, 1.4 },
  { "16 Lua: guard:call, classified, of the same", "guard call, classified",
    { "floor pcall and an empty method" }, 200 // 5.1 / 10 },
}

--- The limits against a locked instruction were set where one takes as long as five empty calls,
--- and hides as much of what stands around it. Where the processor has it for less, it counts as
--- five all the same, and the line says so.
local LOCKED = { ["floor fetch_add"] = true, ["floor compare-and-swap"] = true }
local EMPTY_CALL, LOCKED_CALLS = "floor empty call", 5

--- Median of the rounds' ratios.
local function ratio_of(found, gate)
  local ratios_by_round, cheap = {}, nil
  for round, over in ipairs(found[gate[2]].values) do
    local under = 0
    for _, name in ipairs(gate[3]) do
      local floor = found[name].values[round]
      if LOCKED[name] then
        local call = found[EMPTY_CALL].values[round]
        if floor < LOCKED_CALLS * call then
          cheap = ("one takes %.1f empty calls here, counted as %d"):format(floor / call,
            LOCKED_CALLS)
        end
        floor = math.max(floor, LOCKED_CALLS * call)
      end
      under = under + floor
    end
    ratios_by_round[round] = over / under
  end
  return run.summary(ratios_by_round).median, cheap
end

local function ratios_of(found, gates)
  local values, said = {}, {}
  for _, gate in ipairs(gates) do values[gate], said[gate] = ratio_of(found, gate) end
  return values, said
end

local function core_words(gates)
  local words, seen = { run.program "bench_core", ROUNDS }, {}
  local function want(name)
    if not seen[name] then words[#words + 1] = name end
    seen[name] = true
  end
  for _, gate in ipairs(gates) do
    want(gate[2])
    for _, name in ipairs(gate[3]) do
      want(name)
      if LOCKED[name] then want(EMPTY_CALL) end
    end
  end
  return words
end

--- Measures all, then those that are short again.
--- measure(gates) -> { gate -> value }, { gate -> what is to be said of it }
local function best_of(gates, measure)
  local best, tries, said, left = {}, {}, {}, gates
  for try = 1, TRIES do
    local values, more = measure(left)
    local still = {}
    for _, gate in ipairs(left) do
      local better = gate.is_least and math.max or math.min
      best[gate] = better(best[gate] or values[gate], values[gate])
      tries[gate], said[gate] = try, more and more[gate]
      if better(best[gate], gate[4]) ~= best[gate] then still[#still + 1] = gate end
    end
    left = still
    if #left == 0 then break end
    if try < TRIES then os.execute("sleep " .. PAUSE_S) end
  end
  for _, gate in ipairs(gates) do
    local notes = { tries[gate] > 1 and ("best of %d"):format(tries[gate]) or nil }
    notes[#notes + 1] = said[gate]
    line(gate[1], best[gate], gate.unit or "x", gate[4], notes[1] and table.concat(notes, "; "),
      gate.is_least)
  end
end

--- words_for(gates): what to run.
local function ratios_hold(gates, words_for)
  best_of(gates, function(left)
    return ratios_of(run.measurements(words_for(left)), left)
  end)
end

-- ---- memory ----

local function memory()
  local first = run.measurements { run.program "bench_memory", ROUNDS }
  line("bytes of a breaker", first["bytes of a breaker"].median, " B", 1024)
  line("allocated by 1e6 calls", first["bytes allocated in 1e6 calls"].median, " B", 0)
  line("a panel of 1e6 breakers", first["bytes of a panel for 1e6"].median, " B", 1.1e9)
  line("... resident", first["bytes resident of 1e6"].median, " B", 1.1e9)
  local gates = {
    { "14 random pair of 1e6, of a touch", "shared pair, 1e6 at random",
      { "floor touch, 1e6 at random" }, 6 },
    -- how long a missed line takes is the machine's, and not in how long one breaker's pair does
    { "14 random pair of 1e6, of one breaker's and a missed line", "shared pair, 1e6 at random",
      { "shared pair, 1 of 1e6", "floor missed line, 1e6 at random" }, 1 },
    -- 40 ns where fetch_add takes 6
    { "22 lookup among 10,000 names, of fetch_add", "name lookup, 10,000 names",
      { "floor fetch_add" }, 6.6 },
  }
  local alone = ratio_of(first, { nil, "shared pair, 1e6 at random", { "shared pair, 1 of 1e6" } })
  best_of(gates, function(left)
    local found = first or run.measurements { run.program "bench_memory", ROUNDS }
    first = nil
    return ratios_of(found, left)
  end)
  told("14 ... of one breaker's alone", ("%.1fx"):format(alone), "a missed line is a machine's own")
end

-- ---- sidecar ----

local SIDECAR_ROUNDS, SOAKED, SOAKED_LONG, GROWTH_KB = 3, 100000, 1000000, 512

--- Beside nginx in front of the same upstream.  How fast neap's own answers come is judged by its
--- processor time: what else runs here, the load included, has less of a say in that.  By wall
--- clock it is told besides, with the share of that time that neap had its processor: with the same
--- share in both, near 1, the two ratios are the same; a load that cannot keep up with neap's own
--- answers makes the one by wall clock too small.
local sidecar_ratios = {
  { "sidecar: saturated, of nginx proxy_pass", "neap req/s", { "nginx req/s" }, 0.25,
    is_least = true },
  { "sidecar: a proxied answer's time, of a refusal's", "neap cpu us", { "neap refused cpu us" }, 3,
    is_least = true },
  { "sidecar: ... of a last good answer's", "neap cpu us", { "neap last_good cpu us" }, 3,
    is_least = true },
}
local ADDED = { "sidecar: added to the median, 1,000 requests/s", nil, nil, 500, unit = " us" }

local by_clock = {
  { "sidecar: refusals a second, of proxied answers", "neap refused" },
  { "sidecar: last good answers a second, of the same", "neap last_good" },
}

local function tell_by_clock(found)
  local function busy(name) return found[name .. " busy"].median * 100 // 1 end
  for _, one in ipairs(by_clock) do
    local ratio = ratio_of(found, { nil, one[2] .. " req/s", { "neap req/s" } })
    told(one[1], ("%.2fx"):format(ratio), ("wall clock; neap was busy for %d %% and %d %% of it")
      :format(busy(one[2]), busy "neap"))
  end
end

local function sidecar()
  local last
  local gates = table.move(sidecar_ratios, 1, #sidecar_ratios, 2, { ADDED })
  best_of(gates, function(left)
    local found = run.measurements { "sh", here .. "/sidecar.sh", run.build(), SIDECAR_ROUNDS }
    local values = {}
    last = found
    for _, gate in ipairs(left) do
      values[gate] = gate == ADDED and found["neap p50 us"].median - found["direct p50 us"].median
        or ratio_of(found, gate)
    end
    return values
  end)
  tell_by_clock(last)
end

local function memory_flat(requests)
  local soaked = run.measurements { "sh", here .. "/sidecar.sh", run.build(), 0, "soak", requests }
  local kb = soaked["neap kB"].values
  local quarter = #kb // 4
  local early = run.summary(table.move(kb, quarter + 1, 2 * quarter, 1, {})).median
  local late = run.summary(table.move(kb, #kb - quarter + 1, #kb, 1, {})).median
  line(("sidecar: grows over half of %d requests"):format(requests), late - early, " kB", GROWTH_KB)
end

if what == "--soak" then
  memory_flat(SOAKED_LONG)
else
  counts()
  lua_counts()
  luajit_counts("luajit", 18, 750)
  luajit_counts("luajit -joff", 19, 670)
  nginx_counts()
  haproxy_counts()
end
if not what then
  ratios_hold(ratios, core_words)
  ratios_hold(lua_ratios, function() return run.script("lua5.4", "lua.lua", "time", ROUNDS) end)
  memory()
  sidecar()
  memory_flat(SOAKED)
end
print(("%d of %d hold"):format(total - short, total))
os.exit(short == 0 and 0 or 1)
