--- neap.watch: real files, real events, a real loop.
--- What a look makes of what it finds is reload_spec.lua's.
local uv = require "luv"
local reload = require "neap.reload"
local watch = require "neap.watch"

local root, moment

local function write(path, text, flags)
  local fd = assert(uv.fs_open(path, flags or "w", 420))
  if #text > 0 then assert(uv.fs_write(fd, text)) end
  assert(uv.fs_close(fd))
end

local function remove_all(path)
  local stat = uv.fs_lstat(path)
  if not stat then return end
  if stat.type ~= "directory" then return assert(uv.fs_unlink(path)) end
  local entries = assert(uv.fs_scandir(path))
  for name in function() return uv.fs_scandir_next(entries) end do
    remove_all(path .. "/" .. name)
  end
  assert(uv.fs_rmdir(path))
end

local function text_of(n) return ("return { n = %05d }"):format(n) end

--- A mounted ConfigMap: top/name.lua -> ..data/name.lua, ..data -> ..moment, ..moment/name.lua.
local function swap_mount(top, name, text)
  moment = moment + 1
  local fresh = "..2026_11_30_" .. moment
  assert(uv.fs_mkdir(top .. "/" .. fresh, 493))
  write(top .. "/" .. fresh .. "/" .. name, text)
  local old = uv.fs_readlink(top .. "/..data")
  assert(uv.fs_symlink(fresh, top .. "/..data_tmp"))
  assert(uv.fs_rename(top .. "/..data_tmp", top .. "/..data"))
  if old then remove_all(top .. "/" .. old) end
end

--- Every way a file gets saved: first(path, text) makes it, save(path, text) saves it again.
local ways = {
  in_place = function(path, text) write(path, text, "r+") end,
  truncate = function(path, text)
    write(path, "")
    write(path, text)
  end,
  append = function(path, text)
    write(path, text:sub(1, 8))
    write(path, text:sub(9), "a")
  end,
  temporary_and_rename = function(path, text)
    write(path .. ".tmp", text)
    assert(uv.fs_rename(path .. ".tmp", path))
  end,
  backup_and_rename = function(path, text) -- vim
    assert(uv.fs_rename(path, path .. "~"))
    write(path, text)
    assert(uv.fs_unlink(path .. "~"))
  end,
  delete_and_create = function(path, text)
    assert(uv.fs_unlink(path))
    write(path, text)
  end,
  moved_over = function(path, text)
    local other = root .. "/elsewhere"
    write(other, text)
    assert(uv.fs_rename(other, path))
  end,
  link_swapped = function(path, text)
    moment = moment + 1
    local target = root .. "/target" .. moment
    write(target, text)
    assert(uv.fs_symlink(target, path .. ".link"))
    assert(uv.fs_rename(path .. ".link", path))
  end,
  behind_a_link = function(path, text) write(assert(uv.fs_realpath(path)), text, "r+") end,
  mounted = function(path, text)
    swap_mount(path:match("^(.*)/"), path:match("[^/]*$"), text)
  end,
}

--- The first content, laid out as that way needs it.
local function lay_out(way, path, text)
  if way == "mounted" then
    swap_mount(path:match("^(.*)/"), "policy.lua", text)
    assert(uv.fs_symlink("..data/policy.lua", path))
  elseif way == "behind_a_link" then
    assert(uv.fs_mkdir(root .. "/far", 493))
    write(root .. "/far/policy.lua", text)
    assert(uv.fs_symlink("../far/policy.lua", path))
  else
    write(path, text)
  end
end

describe("the watch on policy files", function()
  local serving, loads, events, reloader, watcher, log

  before_each(function()
    root = assert(uv.fs_mkdtemp("/tmp/neap-watch-XXXXXX"))
    moment = 0
    serving, loads, events, log = {}, 0, {}, {}
  end)

  after_each(function()
    if watcher then watcher:close() end
    uv.run()
    watcher = nil
    remove_all(root)
  end)

  --- `scan_ms` instead of the 2 s between two looks; 0: no look unless something happens.
  local function start(paths, scan_ms, options)
    local errors
    reloader, errors = reload.open {
      paths = paths,
      load = function(path, _, read)
        loads = loads + 1
        local text, err = read(path)
        if not text then return nil, err end
        if not text:find("^return {.*}$") then return nil, path .. ":1: not a policy" end
        return { name = path, hash = text, text = text }
      end,
      adopt = function(policy)
        serving[policy.name] = policy.text
        return true
      end,
      now = function() return math.floor(uv.hrtime() / 1000000) end,
      on_event = function(event) events[#events + 1] = event.kind end,
    }
    assert.is_nil(errors and errors[1])
    loads = 0
    local driven = setmetatable({
      look = function()
        local wait_ms = reloader:look()
        return wait_ms < 2000 and wait_ms or scan_ms == 0 and 3600000 or scan_ms
      end,
    }, { __index = reloader })
    options = options or {}
    options.log = function(level, line) log[#log + 1] = level .. " " .. line end
    watcher = watch.start(driven, options)
  end

  --- Runs the loop until `done` says so; false after limit_ms, in which nobody else's halting of
  --- the machine is counted: a timer that is late fires once.
  local function run_until(limit_ms, done)
    local is_late, timer, ticks = false, uv.new_timer(), 0
    timer:start(5, 5, function()
      ticks = ticks + 1
      is_late = ticks * 5 >= limit_ms
    end)
    while not is_late and not done() do uv.run("once") end
    timer:close()
    uv.run("nowait")
    return not is_late
  end

  local function run_for(ms)
    run_until(ms, function() return false end)
  end

  it("sees ten saves by each way there is, by events alone (B125, B127, B130, B131)", function()
    local paths = {}
    for way in pairs(ways) do
      local directory = root .. "/" .. way
      assert(uv.fs_mkdir(directory, 493))
      paths[#paths + 1] = directory .. "/policy.lua"
      lay_out(way, paths[#paths], text_of(0))
    end
    start(paths, 0)
    run_for(30)
    for n = 1, 10 do
      for way, save in pairs(ways) do save(root .. "/" .. way .. "/policy.lua", text_of(n)) end
      local all_seen = run_until(10000, function()
        for _, path in ipairs(paths) do
          if serving[path] ~= text_of(n) then return false end
        end
        return true
      end)
      local missed = {}
      for _, path in ipairs(paths) do
        if serving[path] ~= text_of(n) then missed[#missed + 1] = path end
      end
      assert(all_seen, ("save %d was missed: %s"):format(n, table.concat(missed, " ")))
    end
    assert.equal(10 * #paths, loads)
    assert.is_nil(table.concat(events, " "):find("failed"))
  end)

  it("takes nothing half written while the writer pauses (B133)", function()
    local pauses, paths = { 0, 50, 120, 500 }, {}
    for i, pause_ms in ipairs(pauses) do
      paths[i] = ("%s/pause%d.lua"):format(root, pause_ms)
      write(paths[i], text_of(0))
    end
    start({ root }, 0)
    for i, path in ipairs(paths) do
      write(path, "")
      local timer = uv.new_timer()
      timer:start(pauses[i], 0, function()
        timer:close()
        write(path, text_of(1))
      end)
    end
    assert(run_until(10000, function()
      for _, path in ipairs(paths) do
        assert(serving[path] == text_of(0) or serving[path] == text_of(1))
        if serving[path] ~= text_of(1) then return false end
      end
      return true
    end))
    assert.equal("reloaded reloaded reloaded reloaded", table.concat(events, " "))
  end)

  it("is not put off by a file beside it that never rests (B137)", function()
    local path = root .. "/x.lua"
    write(path, text_of(0))
    start({ path }, 0)
    local churn = uv.new_timer()
    churn:start(0, 5, function() write(root .. "/other", tostring(uv.hrtime())) end)
    write(path, text_of(1))
    assert(run_until(10000, function() return serving[path] == text_of(1) end))
    churn:close()
  end)

  it("does not begin to wait anew with every event of a burst (B137)", function()
    local path, waits = root .. "/x.lua", {}
    write(path, text_of(0))
    local counting = setmetatable({
      new_timer = function()
        return {
          unref = function() end,
          close = function() end,
          is_closing = function() return false end,
          start = function(_, ms) waits[#waits + 1] = ms end,
        }
      end,
    }, { __index = uv })
    start({ path }, 50, { uv = counting })
    for _ = 1, 100 do watcher:look_soon() end
    assert.same({ 10, 10 }, waits)
    watcher.tick()
    for _ = 1, 100 do watcher:look_soon() end
    assert.same({ 10, 10, 50, 10 }, waits)
    for _, source in pairs(watcher.sources) do source.handle:close() end
    watcher = nil
  end)

  it("reloads nothing for touch, chmod and the same content, a hundred times (B139)", function()
    local path = root .. "/x.lua"
    write(path, text_of(0))
    start({ path }, 0)
    for i = 1, 100 do
      assert(uv.fs_utime(path, i, i))
      assert(uv.fs_chmod(path, i % 2 == 0 and 420 or 384))
      write(path, text_of(0))
      if i % 10 == 0 then run_for(3) end
    end
    run_for(150)
    assert.equal(0, loads)
    assert.same({}, events)
  end)

  it("notices a new file in a directory, and a directory that was replaced", function()
    local directory = root .. "/p"
    assert(uv.fs_mkdir(directory, 493))
    write(directory .. "/x.lua", text_of(0))
    start({ directory }, 0)
    run_for(30)
    write(directory .. "/y.lua", text_of(1))
    assert(run_until(10000, function() return serving[directory .. "/y.lua"] == text_of(1) end))

    assert(uv.fs_rename(directory, root .. "/old"))
    assert(uv.fs_mkdir(directory, 493))
    write(directory .. "/x.lua", text_of(2))
    assert(run_until(10000, function() return serving[directory .. "/x.lua"] == text_of(2) end))
    run_for(30)
    write(directory .. "/x.lua", text_of(3))
    assert(run_until(10000, function() return serving[directory .. "/x.lua"] == text_of(3) end))
  end)

  it("lets a program's own guards follow their files", function()
    local neap = require "neap"
    local path = root .. "/flags.lua"
    local text = "return { name = 'flags', trip = { failures = params.limit }, timeout_ms = %s }"
    write(path, text:format "1")
    local guard = neap.guard(path, { params = { limit = 2 } })
    local function record(event) events[#events + 1] = event.kind end
    reloader = assert(reload.guards({ guard }, { now = neap.clock.precise, on_event = record }))
    assert.equal(0, guard:stats().reloads.ok)
    watcher = watch.start(reloader)
    guard:report(guard:acquire(), "failure")
    write(path, text:format "2")
    assert(run_until(10000, function() return guard.policy.timeout_ms == 2 end))
    write(path, text:format "= 3")
    assert(run_until(10000, function() return guard:stats().reloads.failed == 1 end))
    assert.equal("reloaded reload_failed", table.concat(events, " "))
    assert.is_truthy(guard:stats().last_error:find("flags.lua:1:", 1, true))
    guard:report(guard:acquire(), "failure")
    assert.equal("open", guard:snapshot().state)
  end)

  it("says once where it cannot watch, and finds changes by the timer there", function()
    local path = root .. "/x.lua"
    write(path, text_of(0))
    local is_first = true
    local blind = setmetatable({
      new_fs_event = function()
        is_first = not is_first
        if is_first then return nil, "EMFILE: too many open files" end
        return {
          unref = function() end,
          close = function() end,
          start = function() return nil, "ENOSPC: no space left on device" end,
        }
      end,
    }, { __index = uv })
    start({ path }, 20, { uv = blind })
    for n = 1, 3 do
      write(path, text_of(n))
      assert(run_until(10000, function() return serving[path] == text_of(n) end))
    end
    assert.same({
      "warning " .. root .. ": cannot be watched (ENOSPC: no space left on device), "
        .. "is looked at every 2 s",
    }, log)
  end)

  it("goes on when watching raises", function()
    local path = root .. "/x.lua"
    write(path, text_of(0))
    local failing = setmetatable({
      fs_stat = function() error("boom", 0) end,
    }, { __index = uv })
    start({ path }, 20, { uv = failing })
    write(path, text_of(1))
    assert(run_until(10000, function() return serving[path] == text_of(1) end))
    assert.equal("error watching the policy files: boom", log[1])
  end)

  it("goes on after a look that raised", function()
    local path = root .. "/x.lua"
    write(path, text_of(0))
    start({ path }, 0)
    local look = reloader.look
    function reloader.look() error("boom", 0) end
    write(path, text_of(1))
    assert(run_until(10000, function() return #log > 0 end))
    assert.equal("error looking at the policy files: boom", log[1])
    reloader.look = look
    write(path, text_of(2))
    assert(run_until(10000, function() return serving[path] == text_of(2) end))
  end)

  it("holds no more handles and files after a thousand saves (B112, B214)", function()
    local path = root .. "/x.lua"
    write(path, text_of(0))
    start({ path }, 0)
    run_for(30)
    local function held()
      local handles, files = 0, 0
      uv.walk(function() handles = handles + 1 end)
      local entries = uv.fs_scandir("/proc/self/fd")
      for _ in function() return uv.fs_scandir_next(entries) end do files = files + 1 end
      return handles, files
    end
    local handles, files = held()
    for n = 1, 1000 do
      ways.temporary_and_rename(path, text_of(n))
      reloader:force()
      if n % 50 == 0 then run_for(11) end
    end
    assert.equal(1000, loads)
    assert.same({ handles, files }, { held() })
  end)

  it("ends with its handles closed, and a late event does no harm (B185)", function()
    local path = root .. "/x.lua"
    write(path, text_of(0))
    for _ = 1, 50 do
      start({ path }, 0)
      write(path, text_of(1))
      watcher:look_soon()
      watcher:close()
      watcher:close()
      watcher:look_soon()
      uv.run()
    end
    local open = 0
    uv.walk(function() open = open + 1 end)
    assert.equal(0, open)
  end)
end)
