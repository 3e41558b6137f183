--- What is due when: a heap of functions with one argument, soonest first.
--
--   at(ms, f, a)    f(a) is due then
--   run(until_ms)   lets the time go by
--
-- Of what is due at one instant the order is always the same for the same insertions, no other
-- promise is made.

local agenda = {}

---@class neap.lab.sim.Agenda
---@field now number ms
---@field done integer so many were due so far
local Agenda = {}
Agenda.__index = Agenda

--- f(a) is due at that instant.
---@param ms number
---@param f fun(a: any)
---@param a any
function Agenda:at(ms, f, a)
  local times, functions, args = self.times, self.functions, self.args
  local i = self.size + 1
  self.size = i
  while i > 1 do
    local above = i // 2
    local of_above = times[above]
    if of_above <= ms then break end
    times[i], functions[i], args[i] = of_above, functions[above], args[above]
    i = above
  end
  times[i], functions[i], args[i] = ms, f, a
end

local function drop_first(self)
  local times, functions, args, size = self.times, self.functions, self.args, self.size
  local ms, f, a = times[size], functions[size], args[size]
  functions[size], args[size] = false, false
  size = size - 1
  self.size = size
  local i, below = 1, 2
  while below <= size do
    if below < size and times[below + 1] < times[below] then below = below + 1 end
    if times[below] >= ms then break end
    times[i], functions[i], args[i] = times[below], functions[below], args[below]
    i, below = below, 2 * below
  end
  if size > 0 then times[i], functions[i], args[i] = ms, f, a end
end

--- Does all that is due by then, in order.
---@param until_ms number
function Agenda:run(until_ms)
  local times, functions, args, done = self.times, self.functions, self.args, 0
  while self.size > 0 and times[1] <= until_ms do
    local f, a = functions[1], args[1]
    self.now = times[1]
    drop_first(self)
    done = done + 1
    f(a)
  end
  self.now = until_ms
  self.done = self.done + done
end

---@return neap.lab.sim.Agenda
function agenda.new()
  return setmetatable({ now = 0, done = 0, size = 0, times = {}, functions = {}, args = {} },
    Agenda)
end

return agenda
