--- Drives neap.reload from a libuv loop: file events where the system has them, and a timer.
--
--   event in a watched directory --+
--                                  +--> look, 10 ms later --> look again when the reloader says,
--   timer, 2 s at most ------------+                           watch what it has read
--
-- Directories are watched, never files: most editors save by rename, and a watch on a file would
-- go with the old one.  What an event says is not looked at.  Where events are lost, or there are
-- none (a network file system, no more watches to be had), the timer finds every change.

local watch = {}

local SOON_MS = 10 -- a burst of events is one look
local RETRY_MS = 2000

---@class (exact) neap.watch.options
---@field uv? table luv
---@field log? fun(level: "warning"|"error", line: string)

local Watch = {}
Watch.__index = Watch

local function directory_of(path)
  local directory = path:match("^(.*)/[^/]*$")
  return directory == nil and "." or directory == "" and "/" or directory
end

--- Which directory it is, not how it is called: one that was replaced needs a new watch.
local function identity(self, directory)
  local stat = self.uv.fs_stat(directory)
  if not stat then return nil end
  local born = stat.birthtime
  return ("%d:%d:%d.%d"):format(stat.dev, stat.ino, born.sec, born.nsec)
end

--- Where events may come from.  Files behind symbolic links are edited where they are.
local function directories(self)
  local given, files = self.reloader:watched()
  local wanted = {}
  for _, directory in ipairs(given) do wanted[directory] = true end
  for _, path in ipairs(files) do
    wanted[directory_of(path)] = true
    local real = self.uv.fs_realpath(path)
    if real then wanted[directory_of(real)] = true end
  end
  return wanted
end

local function stop(self, directory)
  local source = self.sources[directory]
  self.sources[directory] = nil
  if not source.handle:is_closing() then source.handle:close() end
end

local function unwatched(self, directory, message)
  if self.warned[directory] then return end
  self.warned[directory] = true
  self.log("warning", ("%s: cannot be watched (%s), is looked at every 2 s"):format(
    directory, tostring(message)))
end

local function start(self, directory, id)
  local handle, message = self.uv.new_fs_event()
  if not handle then return unwatched(self, directory, message) end
  handle:unref()
  local ok
  ok, message = handle:start(directory, {}, function(err)
    if self.timer:is_closing() then return end
    if err and self.sources[directory] then stop(self, directory) end
    self:look_soon()
  end)
  if not ok then
    handle:close()
    return unwatched(self, directory, message)
  end
  self.sources[directory] = { handle = handle, id = id }
  self:look_soon() -- what happened since the look before was not watched yet
end

local function refresh(self)
  local wanted = directories(self)
  for directory, source in pairs(self.sources) do
    local is_same = identity(self, directory) == source.id
    if not (wanted[directory] and is_same) then stop(self, directory) end
  end
  for directory in pairs(wanted) do
    local id = not self.sources[directory] and identity(self, directory)
    if id then start(self, directory, id) end
  end
end

local function try_refresh(self)
  local ok, err = pcall(refresh, self)
  if not ok then self.log("error", "watching the policy files: " .. tostring(err)) end
end

local function arm(self, wait_ms)
  self.timer:start(wait_ms, 0, self.tick)
end

--- Looks within 10 ms, whatever else happens: events do not put each other off.
function Watch:look_soon()
  if self.is_soon or self.timer:is_closing() then return end
  self.is_soon = true
  arm(self, SOON_MS)
end

--- Ends it.  The handles are closed in the loop's next turn.
function Watch:close()
  if self.timer:is_closing() then return end
  self.timer:close()
  for directory in pairs(self.sources) do stop(self, directory) end
end

--- Watches what the reloader has read, from now on.  Does not keep the loop running.
---@param reloader table of neap.reload
---@param options? neap.watch.options
function watch.start(reloader, options)
  options = options or {}
  local uv = options.uv or require "luv"
  local self = setmetatable({
    uv = uv,
    reloader = reloader,
    log = options.log or function() end,
    timer = assert(uv.new_timer()),
    sources = {}, -- watched directories: { handle, id }
    warned = {},
    is_soon = false,
  }, Watch)
  self.timer:unref()
  --- Whatever goes wrong in it, there will be a next one.
  function self.tick()
    self.is_soon = false
    local ok, wait_ms = pcall(reloader.look, reloader)
    if not ok then
      self.log("error", "looking at the policy files: " .. tostring(wait_ms))
      wait_ms = RETRY_MS
    end
    if self.timer:is_closing() then return end
    if not self.is_soon then arm(self, wait_ms) end
    try_refresh(self)
  end
  arm(self, SOON_MS)
  try_refresh(self)
  return self
end

return watch
