--- Queues in a directory of their own; the test says what becomes of a call that is made again.
local assert = require "luassert"
local core = require "neap.core"
local queue = require "neap.queue"

local fixture = { host = {}, warned = {}, replays = {}, directory = nil }

local opened = {}

local LIMITS = { queue = "q", max_entries = 100, max_bytes = 1000000, max_age_ms = 60000,
  attempts = 3 }

function fixture.begin()
  fixture.host, fixture.warned, fixture.replays, opened = {}, {}, {}, {}
  fixture.directory = os.tmpname()
  os.remove(fixture.directory)
  assert(os.execute("mkdir -m 700 " .. fixture.directory))
end

function fixture.finish()
  for _, q in ipairs(opened) do q:close() end
  os.execute("rm -rf " .. fixture.directory)
end

function fixture.path(ending) return fixture.directory .. "/q" .. (ending or "") end

function fixture.read(ending)
  local file = io.open(fixture.path(ending or ".queue"), "rb")
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  return text
end

function fixture.write(text, ending)
  os.remove(fixture.path(ending or ".queue"))
  local file = assert(core.open_file(fixture.path(ending or ".queue")))
  assert(file:append(text))
  file:close()
end

function fixture.open(limits, now_ms)
  local stage = {}
  for k, v in pairs(LIMITS) do stage[k] = v end
  for k, v in pairs(limits or {}) do stage[k] = v end
  local warned, replays = fixture.warned, fixture.replays
  local q = queue.open(stage, {
    path = fixture.path(), host = fixture.host, on_due = function() end,
    warn = function(text) warned[#warned + 1] = text end,
    replay = function(entry, done)
      replays[#replays + 1] = entry
      entry.done = done
    end,
  }, now_ms or 0)
  opened[#opened + 1] = q
  return q
end

function fixture.put(q, ...)
  for _, arg in ipairs { ... } do
    local entry = assert(q:push({ key = "default", args = { arg, n = 1 } }, 0))
    local is_durable
    q:durable(entry, 0, function(ok) is_durable = ok end)
    assert.is_true(fixture.host.sync ~= nil or is_durable)
  end
end

--- Has the oldest call made again, and says what it came to.
function fixture.replay(q, verdict, now_ms, reason)
  local n = #fixture.replays
  q:tend(now_ms)
  local entry = fixture.replays[n + 1]
  assert.is_table(entry, "nothing is replayed")
  entry.done(verdict, reason, nil, now_ms)
  return entry.args[1], entry
end

--- The next so many texts with that mark do not find room on the disk.
function fixture.fill_disk(q, mark, times)
  local file = q.file
  q.file = setmetatable({}, { __index = function(_, name)
    return function(_, text, ...)
      if name == "append" and text:find("^" .. mark .. " ") and times > 0 then
        times = times - 1
        return nil, "No space left on device"
      elseif name == "truncate" then
        return nil, "No space left on device"
      end
      return file[name](file, text, ...)
    end
  end })
end

return fixture
