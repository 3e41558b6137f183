--- neap top: the breakers of a neap that runs, in a terminal, all the time.
---
---   keys, signals --> view --> screen --> the lines that changed
---   /live, every 2 s -> known -^
---
--- However it ends, the terminal is as it was before: also after an error and a signal.

local http = require "neap.top.http"
local json = require "neap.cmd.json"
local keys = require "neap.top.keys"
local known = require "neap.top.known"
local screen = require "neap.top.screen"

local top = {}

local POLL_MS, LONGEST_WAIT_MS, TICK_MS = 2000, 15000, 1000
local NORMAL, RAW = 0, 1

local ENTER = "\27[?1049h\27[?25l\27[?7l\27[2J" -- a screen of its own, no cursor, no wrapping
local LEAVE = "\27[?7h\27[?25h\27[?1049l"

local Top = {}
Top.__index = Top

-- ---- Drawing ----------------------------------------------------------------------------------

local function wall_ms(self)
  local seconds, microseconds = self.uv.gettimeofday()
  return seconds * 1000 + microseconds // 1000
end

--- Writes the lines that are not as they are on the screen.
local function put(self, lines)
  local out = {}
  for i = 1, self.view.rows do
    local line = lines[i] or ""
    if self.shown[i] ~= line then out[#out + 1] = ("\27[%d;1H\27[K%s\27[0m"):format(i, line) end
    self.shown[i] = line
  end
  self.write(table.concat(out))
end

local function index_of(list, id)
  for i, row in ipairs(list) do
    if row.id == id then return i end
  end
end

--- What is chosen stays so wherever it goes, and is seen.
local function follow(self, list)
  local view, room = self.view, screen.room(self.view)
  local at = index_of(list, view.chosen) or math.max(1, math.min(self.at or 1, #list))
  view.chosen, self.at = list[at] and list[at].id, at
  view.first = math.max(1, math.min(view.first, at, math.max(1, #list - room + 1)))
  if at >= view.first + room then view.first = at - room + 1 end
end

function Top:draw()
  local view = self.view
  view.now_ms = wall_ms(self) + self.known.ahead_ms
  view.lost = self.lost and {
    why = self.lost, age_ms = wall_ms(self) - self.heard_ms,
    wait_ms = self.poll_timer:get_due_in(),
  }
  if view.detail == nil then
    self.list = self.known:list(view.text, view.sort)
    follow(self, self.list)
    return put(self, screen.list(view, self.list))
  end
  local lines, count = screen.detail(view, self.known.rows[view.chosen])
  self.last = math.max(1, count - (view.rows - 3) + 1)
  put(self, lines)
end

--- All of it, as the terminal may show anything; each line is cleared before it is written.
function Top:redraw()
  self.view.columns, self.view.rows = self.tty:get_winsize()
  self.view.columns = math.max(20, self.view.columns or 80)
  self.view.rows = math.max(5, self.view.rows or 24)
  self.shown = {}
  self:draw()
end

-- ---- Asking -----------------------------------------------------------------------------------

local function is_right(said)
  return type(said) == "table" and type(said.rows) == "table" and type(said.fields) == "table"
    and type(said.policies) == "table"
end

local function why_not(status, body)
  if not status then return body end
  if status == 401 then return "it asks for another token" end
  return ("it answers with %d"):format(status)
end

function Top:ask_detail()
  local row = self.known.rows[self.view.chosen]
  if not row then return end
  local path = ("/live/%s/%s"):format(self.encode(row.policy), self.encode(row.key))
  http.get(self.uv, self.target, path, self.safely(function(status, body)
    local said = status == 200 and json.decode(body)
    if self.view.detail ~= nil and type(said) == "table" and type(said.moves) == "table" then
      self.view.detail = said
      self:draw()
    end
  end))
end

function Top:poll()
  if self.is_asking then return end
  self.is_asking = true
  http.get(self.uv, self.target, self.known:path(), self.safely(function(status, body)
    self.is_asking = false
    local said = status == 200 and json.decode(body)
    local wait_ms = POLL_MS
    if is_right(said) then
      self.known:take(said, wall_ms(self), json.null)
      self.lost, self.tries, self.heard_ms = nil, 0, wall_ms(self)
      if self.view.detail ~= nil then self:ask_detail() end
    else
      self.lost, self.tries = why_not(status, body), self.tries + 1
      wait_ms = math.min(LONGEST_WAIT_MS, 1000 * 2 ^ math.min(self.tries - 1, 5)) // 1
    end
    self.poll_timer:start(math.tointeger(wait_ms), 0, self.safely(function() self:poll() end))
    self:draw()
  end))
end

-- ---- Keys -------------------------------------------------------------------------------------

local function move(self, by)
  local at = math.max(1, math.min(#self.list, (self.at or 1) + by))
  self.view.chosen, self.at = self.list[at] and self.list[at].id, at
end

local LIST_KEYS = {
  j = function(self) move(self, 1) end,
  k = function(self) move(self, -1) end,
  g = function(self) move(self, -math.huge) end,
  G = function(self) move(self, math.huge) end,
  pagedown = function(self) move(self, screen.room(self.view)) end,
  pageup = function(self) move(self, -screen.room(self.view)) end,
  q = function(self) self:quit(0) end,
  ["/"] = function(self) self.view.is_typing = true end,
  escape = function(self) self.view.text = "" end,
  s = function(self)
    for i, sort in ipairs(known.sorts) do
      if sort == self.view.sort then
        self.view.sort = known.sorts[i % #known.sorts + 1]
        break
      end
    end
  end,
  enter = function(self)
    if not self.view.chosen then return end
    self.view.detail, self.first_of_list, self.view.first = false, self.view.first, 1
    self:ask_detail()
  end,
}
LIST_KEYS.down, LIST_KEYS.up, LIST_KEYS.home, LIST_KEYS["end"] =
  LIST_KEYS.j, LIST_KEYS.k, LIST_KEYS.g, LIST_KEYS.G

local function scroll(self, by)
  self.view.first = math.max(1, math.min(self.last or 1, self.view.first + by))
end

local function back(self) self.view.detail, self.view.first = nil, self.first_of_list end

local DETAIL_KEYS = {
  j = function(self) scroll(self, 1) end,
  k = function(self) scroll(self, -1) end,
  g = function(self) scroll(self, -math.huge) end,
  G = function(self) scroll(self, math.huge) end,
  pagedown = function(self) scroll(self, self.view.rows - 4) end,
  pageup = function(self) scroll(self, 4 - self.view.rows) end,
  q = back, escape = back, left = back, enter = back,
}
DETAIL_KEYS.down, DETAIL_KEYS.up, DETAIL_KEYS.home, DETAIL_KEYS["end"] =
  DETAIL_KEYS.j, DETAIL_KEYS.k, DETAIL_KEYS.g, DETAIL_KEYS.G
DETAIL_KEYS[" "] = DETAIL_KEYS.pagedown

local function type_key(self, key)
  local view = self.view
  if key == "enter" then
    view.is_typing = false
  elseif key == "escape" then
    view.is_typing, view.text = false, ""
  elseif key == "backspace" then
    view.text = view.text:gsub("[^\128-\191][\128-\191]*$", "")
  elseif #key == 1 or key:byte() >= 0x80 then
    view.text = view.text .. key
  end
end

function Top:key(key)
  if key == "ctrl-c" then return self:quit(0) end
  if key == "ctrl-z" then return self:suspend() end
  if key == "ctrl-l" then
    self:poll()
    return self:redraw()
  end
  if self.view.is_typing then
    type_key(self, key)
  else
    local act = (self.view.detail == nil and LIST_KEYS or DETAIL_KEYS)[key]
    if act then act(self) end
  end
  if not self.status then self:draw() end
end

-- ---- The terminal -----------------------------------------------------------------------------

function Top:enter()
  self.tty:set_mode(RAW)
  self.write(ENTER)
end

function Top:leave()
  self.tty:set_mode(NORMAL) -- not tty_reset_mode(), after which libuv believes it still raw
  self.write(LEAVE)
end

--- Ctrl-Z, as any other program; and on again with fg.
function Top:suspend()
  self:leave()
  self.uv.kill(self.uv.os_getpid(), "sigstop")
  self:enter()
  self:redraw()
end

function Top:quit(status)
  self.status = status
  self.uv.stop()
end

local SIGNALS = { sigterm = 143, sighup = 129, sigint = 130 }

local function listen(self)
  for name, status in pairs(SIGNALS) do
    self.uv.new_signal():start(name, self.safely(function() self:quit(status) end))
  end
  self.uv.new_signal():start("sigwinch", self.safely(function() self:redraw() end))
  self.uv.new_signal():start("sigcont", self.safely(function()
    self:enter()
    self:redraw()
  end))
  self.tty:read_start(self.safely(function(err, text)
    if err or not text then return self:quit(SIGNALS.sighup) end -- the terminal is gone
    for _, key in ipairs(keys.of(text)) do
      if not self.status then self:key(key) end
    end
  end))
  self.uv.new_timer():start(TICK_MS, TICK_MS, self.safely(function() self:draw() end))
end

---@class neap.top.options
---@field uv table luv
---@field target { host: string, port: integer, where: string, token?: string }
---@field encode fun(text: string): string a part of a path
---@field first table what /live said
---@field colours boolean
---@field utf8 boolean
---@field write fun(text: string) to the terminal, at once

--- Runs until it is ended.
---@param options neap.top.options
---@return integer exit_status
---@return string|nil fault of ours: what was raised
function top.run(options)
  local uv = options.uv
  local self = setmetatable({
    uv = uv, target = options.target, encode = options.encode, write = options.write,
    known = known.new(), shown = {}, tries = 0, list = {},
    tty = uv.new_tty(0, true), poll_timer = uv.new_timer(),
  }, Top)
  local fault
  -- luv ends the program on an error in a callback: first the terminal has to be put right.
  self.safely = function(f)
    return function(...)
      local ok, err = xpcall(f, debug.traceback, ...)
      if ok then return end
      fault = fault or err
      self:quit(1)
    end
  end
  self.view = { known = self.known, where = options.target.where, colours = options.colours,
    utf8 = options.utf8, text = "", sort = known.sorts[1], first = 1, rows = 24, columns = 80 }
  self.heard_ms = wall_ms(self)
  self.known:take(options.first, self.heard_ms, json.null)
  self:enter()
  self.safely(function()
    listen(self)
    self.poll_timer:start(POLL_MS, 0, self.safely(function() self:poll() end))
    self:redraw()
  end)()
  while not self.status do uv.run() end
  self:leave()
  return self.status, fault
end

return top
