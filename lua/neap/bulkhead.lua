--- Waiting for a slot of a bulkhead: first come, first served.
--
--   slots   the line's, in C: taken by acquire, given back with the permit, however the call ends
--   queue   who waits for one: woken in turn as slots come free, or late
--
-- Who was woken still has to take its slot: if somebody came between, it waits on, first in the
-- queue.  Who waits no more (its coroutine was dropped) is passed over; nobody waits longer than
-- wait_ms.

local bulkhead = {}

local function has_room(line)
  local _, _, is_free = line.native:slots()
  return is_free
end

--- Does anybody wait?
---@param line table
---@return boolean
local function is_awaited(line)
  local queue = line.queue
  return queue ~= nil and queue.first <= queue.last
end

--- A slot may be free: wakes who is next, if anybody waits.
---@param line table
function bulkhead.freed(line)
  local queue = line.queue
  while is_awaited(line) and has_room(line) do
    local waiter = queue[queue.first]
    queue[queue.first] = nil
    queue.first = queue.first + 1
    if waiter.wake() then return end
  end
end

local function enqueue(line, waiter, is_next)
  local queue = line.queue
  local at = is_next and queue.first - 1 or queue.last + 1
  queue[at] = waiter
  if is_next then queue.first = at else queue.last = at end
end

--- Waits until there may be a slot, or for so long.  Where nothing can wait it does not.
---@param line table
---@param host neap.Host
---@param wait_ms number
function bulkhead.wait(line, host, wait_ms)
  if not host.turn or wait_ms <= 0 or (has_room(line) and not is_awaited(line)) then return end
  line.queue = line.queue or { first = 1, last = 0 }
  local until_ms = line.native:now() + wait_ms
  local waiter, is_next = {}, false
  bulkhead.freed(line) -- for one who was dropped after it was woken
  repeat
    local was_woken = host.turn(until_ms - line.native:now(), function(wake)
      waiter.wake = wake
      enqueue(line, waiter, is_next)
    end)
    is_next = true
  until not was_woken or has_room(line) or line.native:now() >= until_ms
end

return bulkhead
