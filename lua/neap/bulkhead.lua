--- Waiting for a slot of a bulkhead: first come, first served.
--
--   slots   the line's, in C: taken by acquire, given back with the permit, however the call ends
--   queue   who waits for one, each at the place that is its own: woken in turn as slots come free,
--           or late
--
-- Who was woken still has to take its slot: until it has run, whoever comes waits behind it, and if
-- it finds the slot taken all the same (by acquire) it waits on in its place.  Who does not take it
-- (refused by the breaker, or too late) passes its turn on.  Who waits no more (its coroutine was
-- dropped) is passed over; nobody waits longer than wait_ms, nor leaves anything behind.

local huge, max, min = math.huge, math.max, math.min

local bulkhead = {}

local LOOKS, LEAST_MS = 8, 10 -- so often a waiter looks himself, and not sooner
local LEASE_MS = 100 -- who was woken and has not run since will not

---@class neap.SlotQueue by place: who waits there
---@field first integer no place before it is taken
---@field last integer the last one that was given
---@field woken integer so many were, and have not run
---@field woken_ms number when the last one was

local function free_slots(line)
  local rules = line.guard.policy.bulkhead
  return rules and rules.concurrent - line.native:slots() or huge
end

--- Who is next, if anybody waits who is not late.
local function next_of(queue, now_ms)
  local waiter = queue[queue.first]
  while queue.first <= queue.last and (not waiter or waiter.until_ms < now_ms) do
    queue[queue.first] = nil
    queue.first = queue.first + 1
    waiter = queue[queue.first]
  end
  return waiter
end

--- Is there anybody who goes first?
local function is_awaited(queue, now_ms)
  if now_ms - queue.woken_ms > LEASE_MS then queue.woken = 0 end
  return queue.woken > 0 or next_of(queue, now_ms) ~= nil
end

--- A slot may be free: wakes who is next, and so many more as there are slots for.
---@param line table
function bulkhead.freed(line)
  local queue = line.queue
  if not queue or queue.first > queue.last then return end
  local now_ms, free = line.native:now(), free_slots(line)
  local waiter = free > 0 and next_of(queue, now_ms)
  while waiter do
    queue[waiter.at] = nil
    if waiter.wake() then
      queue.woken, queue.woken_ms = queue.woken + 1, now_ms
      if free <= queue.woken then return end
    end
    waiter = next_of(queue, now_ms)
  end
end

--- Waits at its place: whether it was woken.
local function wait_at(host, queue, waiter, ms)
  local was_woken = host.turn(ms, function(wake)
    waiter.wake = wake
    queue[waiter.at] = waiter
    queue.first = min(queue.first, waiter.at)
  end)
  queue[waiter.at] = nil
  if was_woken then queue.woken = max(0, queue.woken - 1) end
  return was_woken
end

--- A slot may have come back without a report, which nobody tells: is one free, and is it the
--- waiter's turn?
local function may_go(line, queue, waiter)
  local first = next_of(queue, line.native:now())
  return free_slots(line) > queue.woken and (not first or first.at > waiter.at)
end

--- Waits until there may be a slot, or for so long.  Where nothing can wait it does not.
---@param line table
---@param host neap.Host
---@param wait_ms number
function bulkhead.wait(line, host, wait_ms)
  if not host.turn or wait_ms <= 0 then return end
  local queue, now_ms = line.queue, line.native:now()
  if free_slots(line) > 0 and not (queue and is_awaited(queue, now_ms)) then return end
  queue = queue or { first = 1, last = 0, woken = 0, woken_ms = now_ms }
  line.queue = queue
  bulkhead.freed(line) -- for one who was dropped after it was woken
  local until_ms = now_ms + wait_ms
  queue.last = queue.last + 1
  local waiter = { at = queue.last, until_ms = until_ms }
  local look_ms = max(LEAST_MS, wait_ms / LOOKS)
  local was_woken, is_over
  repeat
    was_woken = wait_at(host, queue, waiter, min(look_ms, until_ms - line.native:now()))
    is_over = line.native:now() >= until_ms
  until is_over or was_woken and free_slots(line) > 0
    or not was_woken and may_go(line, queue, waiter)
end

return bulkhead
