--- A queue whose process is killed at any moment, again and again: while it appends, syncs, makes
-- calls again, writes dead letters and cuts its file.  For test_queue_killed.sh.
--
--   queue_killed.lua DIRECTORY KILLS SEED          kills a worker so often, then looks at all
--   queue_killed.lua DIRECTORY worker SEED         the worker
--   queue_killed.lua DIRECTORY worker SEED last    puts nothing in, and ends when nothing waits
--
-- The journal is what the world has seen: a line is one write, so it is there or it is not.
--
--   told ID NAME     the caller has had his 202
--   made ID NAME     the dependency has done it (or, of a poisonous one, refused it)
--   said TEXT        a warning
local uv = require "luv"
local queue = require "neap.queue"
local records = require "neap.records"
local data = require "neap.data"

local directory, what, seed, is_last = arg[1], arg[2], tonumber(arg[3]), arg[4] == "last"
math.randomseed(seed)
local path = directory .. "/journal"

-- ---- The worker -------------------------------------------------------------------------------

local function worker()
  local journal = assert(uv.fs_open(path, "a", 384))
  local function note(text) assert(uv.fs_write(journal, text .. "\n")) end
  local elsewhere = math.random() < 0.5 -- is synced on another thread
  local host = {}
  function host.sync(descriptor, done)
    uv.fs_fdatasync(descriptor, function(err) done(not err or nil, err) end)
  end
  local stage = { queue = "q", max_entries = 500, max_bytes = 400000, max_age_ms = 1e9,
    attempts = 2 }
  local speed = math.random() -- of the dependency: sometimes the queue grows, sometimes it is empty
  local function replay(entry, done)
    local timer = uv.new_timer()
    timer:start(math.random() < 0.5 and 0 or 1, 0, function()
      timer:close()
      local name = entry.args[1]
      if not is_last and math.random() > speed then return done("later", nil, 1, uv.now()) end
      note(("made %s %s"):format(entry.id, name))
      local function say() done(name:find "poison" and "own" or "done", "no", nil, uv.now()) end
      if math.random() < 0.8 then return say() end
      local later = uv.new_timer()
      later:start(1, 0, function()
        later:close()
        say()
      end)
    end)
  end
  local q = queue.open(stage, {
    path = directory .. "/q", host = elsewhere and host or {}, replay = replay,
    on_due = function() end, warn = function(text) note("said " .. text) end,
  }, uv.now())
  note(("open %d"):format(q.count))
  local n = 0
  local function put()
    n = n + 1
    local kind = math.random() < 0.03 and "poison" or "call"
    local name = ("%s-%d-%d"):format(kind, seed, n)
    local size = math.random() < 0.05 and math.random(100000) or math.random(200)
    local entry = q:push({ key = "k", args = { name, ("x"):rep(size), n = 2 } }, uv.now())
    if not entry then return end
    q:durable(entry, uv.now(), function(ok)
      if ok then note(("told %s %s"):format(entry.id, name)) end
    end)
  end
  local tick, ticks = uv.new_timer(), 0
  tick:start(0, 1, function()
    ticks = ticks + 1
    local is_lull = is_last or ticks % 20 > 10 -- in which it may get empty
    for _ = 1, is_lull and 0 or math.random(4) do put() end
    for _ = 1, 5 do
      if q.next_ms > uv.now() + 1 then q:hurry() end
      q:tend(uv.now())
    end
    if is_last and q.count == 0 then
      tick:close()
      q:close()
    end
  end)
  uv.run()
end

-- ---- Killing it -------------------------------------------------------------------------------

local function run(of_seed, last, after_ms)
  local child, ended
  child = assert(uv.spawn(arg[-1], {
    args = { arg[0], directory, "worker", tostring(of_seed), last or "" }, stdio = { nil, 1, 2 },
  }, function(code, signal)
    ended = code == 0 and (signal == 9 or signal == 0) and "ok"
      or ("ended with %d, signal %d"):format(code, signal)
    child:close()
  end))
  if after_ms then
    local timer = uv.new_timer()
    timer:start(after_ms, 0, function()
      timer:close()
      if not ended then child:kill "sigkill" end
    end)
  end
  while not ended do uv.run "once" end
  uv.run "nowait"
  assert(ended == "ok", ended)
end

local function letters()
  local found = {}
  for _, ending in ipairs { ".dead.1", ".dead" } do
    local file = io.open(directory .. "/q" .. ending, "rb")
    local text = file and file:read "*a" or ""
    if file then file:close() end
    local at = 1
    while at <= #text do
      local mark, content, after = records.at(text, at)
      local letter = mark == "X" and assert(data.value(content))
      if letter then found[letter.id] = letter end
      at = after or (text:find("\nX ", at, true) or #text) + 1 -- half a letter
    end
  end
  return found
end

local function look(kills)
  local told, order, place, made, names, sum = {}, {}, {}, {}, {}, { said = 0, again = 0, told = 0 }
  local last_place = 0
  for text in io.lines(path) do
    local mark, id, name = text:match "^(%a+) (%S+) ?(.*)$"
    if mark == "told" then
      assert(not told[id], "an id was given twice: " .. id)
      told[id], sum.told = name, sum.told + 1
      order[#order + 1] = id
      place[id] = #order
    elseif mark == "made" then
      assert(not names[id] or names[id] == name, "another call has the id " .. id)
      if made[id] and not name:find "poison" then sum.again = sum.again + 1 end
      -- Not before the one that was told before it; one that nobody was told of has no place.
      local at = not made[id] and place[id]
      assert(not at or at > last_place, ("out of order: %s"):format(text))
      last_place = at or last_place
      made[id], names[id] = (made[id] or 0) + 1, name
    elseif mark == "said" and not text:find "goes to the dead letters" then
      sum.said = sum.said + 1
      assert(text:find "not whole, or damaged: cut at byte" or text:find "is full: it is", text)
    end
  end
  local buried, dead = letters(), 0
  for id, name in pairs(told) do
    assert(made[id], ("%s %s was answered 202, and never made"):format(id, name))
    assert(names[id] == name, ("%s was %s, made as %s"):format(id, name, names[id]))
    if name:find "poison" then
      dead = dead + 1
      assert(made[id] >= 2 and made[id] <= 2 + kills, name)
      assert(buried[id] and buried[id].args[1] == name, name .. " is no dead letter")
    end
  end
  assert(sum.again <= kills, ("%d made again after %d kills"):format(sum.again, kills))
  assert(sum.told > kills and sum.said <= 2 * kills)
  print(("ok: %d kills, %d calls told as queued, %d made twice, %d dead letters, %d torn tails")
    :format(kills, sum.told, sum.again, dead, sum.said))
end

if what == "worker" then return worker() end

local kills = tonumber(what)
for i = 1, kills do run(seed * 10000 + i, nil, math.random(20, 150)) end
run(seed * 10000, "last")
look(kills)
