--- What has happened lately, for whoever follows GET /events: server-sent events.
---
---   push --> the last so many messages, numbered --> each follower's next, at his own pace
---                                               \--> one who comes back says what he saw last
---
--- A number is BOOT-N: one of another start of the program is not mistaken for one of this.  No
--- sockets here: the host asks a follower for his next text, and is told (on_more) when there is
--- one.

local json = require "neap.cmd.json"

local feed = {}

local FOLLOWERS = 8 -- of the 64 connections that the admin pages may have
local RETRY_MS = 2000

---@class neap.cmd.feed.options
---@field boot string          tells this start of the program from others
---@field kept integer         how many messages one who comes back may have missed
---@field on_more fun()        followers have something to be sent

---@class neap.cmd.Feed
---@field last integer         number of the newest message; 0: none yet
---@field counts table<string, integer> messages by kind
---@field following integer    so many follow now
---@field missed integer       messages that came back too late for
local Feed = {}
Feed.__index = Feed

---@class neap.cmd.Follower
local Follower = {}
Follower.__index = Follower

--- As it is sent: made when the first follower is told, for often there is none.
local function text_of(one)
  if not one.text then
    one.text = ("id: %s\nevent: %s\ndata: %s\n\n"):format(one.fields.id, one.kind,
      json.line(one.fields))
    one.fields = nil
  end
  return one.text
end

--- Another event: the same for every follower.  The fields are not to be changed any more.
---@param kind string
---@param fields table
function Feed:push(kind, fields)
  self.last = self.last + 1
  fields.id = ("%s-%d"):format(self.boot, self.last)
  self[self.last] = { kind = kind, fields = fields }
  self[self.last - self.kept] = nil
  self.counts[kind] = (self.counts[kind] or 0) + 1
  self.on_more()
  return fields
end

--- Where one who has seen that message goes on, and how many are gone that he has not.
local function after(self, id)
  local oldest = math.max(1, self.last - self.kept + 1)
  local boot, number = id:sub(1, 64):match("^(%w+)%-(%d+)$")
  number = boot == self.boot and math.min(tonumber(number), self.last) or 0
  return math.max(oldest, number + 1), math.max(0, oldest - number - 1)
end

--- Somebody follows from now on; nil: too many do.
---@param seen? string   the message that he has seen last
---@param recent? integer  without that: he begins with so many of the last
---@return neap.cmd.Follower|nil
function Feed:follow(seen, recent)
  if self.following >= FOLLOWERS then return nil end
  self.following = self.following + 1
  local begin, missed = self.last + 1, 0
  if seen then
    begin, missed = after(self, seen)
  elseif recent then
    begin = math.max(1, self.last - math.min(recent, self.kept) + 1)
  end
  local first = ("retry: %d\n\n"):format(RETRY_MS)
  if missed > 0 then
    self.missed = self.missed + missed
    first = first .. ("event: missed\ndata: {\"count\": %d}\n\n"):format(missed)
  end
  return setmetatable({ feed = self, next = begin, first = first }, Follower)
end

--- All who wait are sent a comment: a connection that is gone is found out.
function Feed:beat()
  self.beats = self.beats + 1
  self.on_more()
end

---@param options neap.cmd.feed.options
---@return neap.cmd.Feed
function feed.new(options)
  return setmetatable({
    boot = options.boot, kept = options.kept, on_more = options.on_more, last = 0, beats = 0,
    counts = {}, following = 0, missed = 0,
  }, Feed)
end

--- What is to be sent to him next; false: nothing for now.
---@return string|false
function Follower:text()
  local of, first = self.feed, self.first
  if first then
    self.first, self.beats = nil, of.beats
    return first
  end
  self.next = math.max(self.next, of.last - of.kept + 1)
  if self.next <= of.last then
    self.next, self.beats = self.next + 1, of.beats
    return text_of(of[self.next - 1])
  elseif self.beats ~= of.beats then
    self.beats = of.beats
    return ":\n\n"
  end
  return false
end

--- He does not follow any more.
function Follower:close()
  if self.is_over then return end
  self.is_over = true
  self.feed.following = self.feed.following - 1
end

return feed
