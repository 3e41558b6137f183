--- Transitions, posted to a webhook: one after the other, in order, each until it is taken.
---
---   push --> queue --> post --2xx--> delivered
---              |        ^ \--4xx--> refused: the same again would be, too
---              |        +--wait--- no answer, 5xx, 408, 425, 429
---              |                    \--for an hour--> expired
---              \--full: the oldest that is not under way--> overflow
---
--- No sockets here: post(id, body) has it sent, done(status, failure) is told what came of that.

local json = require "neap.cmd.json"

local webhook = {}

local MOST = 1000
local FIRST_MS, LONGEST_MS, LATE_MS = 1000, 60000, 60 * 60 * 1000
local LOG_EVERY_MS = 60000
local AGAIN = { [408] = true, [425] = true, [429] = true }

--- What may become of an event.
webhook.results = { "delivered", "refused", "expired", "overflow" }

---@class neap.cmd.webhook.options
---@field host string                                for the log: the path may be a secret
---@field post fun(id: string, body: string)
---@field later fun(ms: number, f: fun())
---@field now fun(): number                          ms, never jumps
---@field random fun(): number                       from 0 to under 1
---@field log fun(level: "info"|"warn", text: string)

---@class neap.cmd.Webhook
---@field counts table<string, integer> by result
---@field retries integer
local Webhook = {}
Webhook.__index = Webhook

--- How many wait, the one under way included.
---@return integer
function Webhook:waiting() return self.last - self.first + 1 end

local function send(self)
  local one = self[self.first]
  self.is_busy = true
  self.post(one.id, one.body)
end

local function next_one(self, result)
  self.counts[result] = self.counts[result] + 1
  self[self.first] = nil
  self.first, self.tries, self.is_busy = self.first + 1, 0, false
  if self.first <= self.last then send(self) end
end

--- The second oldest goes: the oldest may be on its way.
local function make_room(self)
  self[self.first + 1] = self[self.first]
  self[self.first] = nil
  self.first = self.first + 1
  self.counts.overflow = self.counts.overflow + 1
end

--- Another event, whose fields it keeps as they are now.
---@param fields table
function Webhook:push(fields)
  if self:waiting() >= MOST then make_room(self) end
  self.last = self.last + 1
  self[self.last] = { id = fields.id, body = json.line(fields) .. "\n", at_ms = self.now() }
  if not self.is_busy then send(self) end
end

local function log_seldom(self, text)
  local now_ms = self.now()
  if self.logged_ms and now_ms - self.logged_ms < LOG_EVERY_MS then return end
  self.logged_ms = now_ms
  self.log("warn", text)
end

--- Half of it is certain, the rest is chance: many processes do not come back at once.
local function wait_ms(self)
  local most_ms = math.min(LONGEST_MS, FIRST_MS * 2 ^ (self.tries - 1))
  return most_ms * (0.5 + 0.5 * self.random())
end

local function try_again(self, why)
  self.tries = self.tries + 1
  if self.now() - self[self.first].at_ms >= LATE_MS then
    log_seldom(self, ("webhook %s: %s, for an hour: an event was dropped"):format(self.host, why))
    return next_one(self, "expired")
  end
  log_seldom(self, ("webhook %s: %s; %d wait, the first is tried again"):format(self.host, why,
    self:waiting()))
  self.is_failing, self.retries = true, self.retries + 1
  self.later(wait_ms(self), function() send(self) end)
end

--- What came of the one under way.
---@param status integer|nil  nil: no answer
---@param failure string|nil  then: why not
function Webhook:done(status, failure)
  if status and status >= 200 and status < 300 then
    if self.is_failing then
      self.log("info", ("webhook %s: takes events again"):format(self.host))
    end
    self.is_failing, self.logged_ms = false, nil
    return next_one(self, "delivered")
  end
  local why = status and "answered " .. status or tostring(failure)
  if status and status < 500 and not AGAIN[status] then
    log_seldom(self, ("webhook %s: %s: an event was refused%s"):format(self.host, why,
      status < 400 and ", as redirects are not followed" or ""))
    return next_one(self, "refused")
  end
  try_again(self, why)
end

---@param options neap.cmd.webhook.options
---@return neap.cmd.Webhook
function webhook.new(options)
  local self = setmetatable({ first = 1, last = 0, tries = 0, retries = 0, counts = {} }, Webhook)
  for name, value in pairs(options) do self[name] = value end
  for _, result in ipairs(webhook.results) do self.counts[result] = 0 end
  return self
end

return webhook
