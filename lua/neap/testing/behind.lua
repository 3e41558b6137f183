--- What happens behind callers' backs: answers are refreshed, queued calls are made again.

local exchange = require "neap.testing.exchange"

local behind = {}

--- A last good answer is refreshed: the same call, which nobody waits for.
---@param self neap.testing.Bench
---@param of neap.testing.Exchange
---@param ended function
function behind.refresh(self, of, ended)
  self.world:at(self.clock:now(), function()
    local call = self:new_call( "refresh")
    call.key, call.about, call.request = of.call.key, of.call.about, of.request
    exchange.begin {
      bench = self, call = call, script = of.script, args = of.args, request = of.request,
      takes_ms = of.takes_ms, is_apart = true,
      done = function()
        ended()
        self:note_call(call)
      end,
    }
  end)
end

local VERDICTS = { success = "done", neutral = "own" }

--- A call of a queue is made again.
---@param self neap.testing.Bench
---@param entry neap.Queued
---@param done function
function behind.replay(self, entry, done)
  local call = self:new_call( "replay")
  call.key, call.request = entry.key, entry.request
  if entry.request then
    call.about = (" %s %s"):format(entry.request.method, entry.request.target)
  end
  exchange.begin {
    bench = self, call = call, script = self:read(nil), request = entry.request,
    args = entry.args or { entry.request, n = 1 }, is_apart = true,
    done = function(x)
      local wait_ms = x.refusal and call.refused and x.refusal.retry_after_ms or nil
      self:note_call(call)
      if call.attempts > 0 then self.made_again[#self.made_again + 1] = call end
      done(VERDICTS[call.outcome] or "later", call.reason, wait_ms, self.clock:now())
    end,
  }
end

local NOTHING_TO_DO = { GET = true, HEAD = true, OPTIONS = true, TRACE = true }

--- What of a call is put into a queue.
function behind.question(call)
  local request = call.request
  if not request then return { args = call.args or { n = 0 } } end
  if NOTHING_TO_DO[request.method] then return nil end
  return { request = request }
end

--- Does what a guard has to have done now and then, as a program's timer would.
---@param self neap.testing.Bench
---@param of_guard neap.Guard
function behind.tend(self, of_guard)
  if self.guard ~= of_guard then return end
  local wait_ms = math.max(1, of_guard:tend())
  self.world:at(self.clock:now() + wait_ms, function() behind.tend(self, of_guard) end, true)
end

return behind
