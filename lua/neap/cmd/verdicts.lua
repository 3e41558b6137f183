--- What counts as what under a policy: its classify, tried on calls of every kind.
---
---   success   status 200-399
---   failure   status 429, 500-599; timeout, transport
---   neutral   status 400-428, 430-499; caller, bulkhead

local library = require "neap.classify"

local verdicts = {}

local ENDS = { "timeout", "transport", "caller", "bulkhead" }

local function sorted_names(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function call_of(fields)
  fields.headers, fields.duration_ms, fields.key = {}, 5, "default"
  fields.ended_by = fields.ended_by or "answer"
  return fields
end

--- A timeout is a failure, here as in the rules.
local function verdict(policy, fields)
  local outcome = policy.classify(call_of(fields))
  return outcome == "timeout" and "failure" or outcome
end

local function add(into, outcome, kind, text)
  local of_outcome = into[outcome]
  of_outcome[kind] = of_outcome[kind] or {}
  table.insert(of_outcome[kind], text)
end

local function try_statuses(policy, into)
  local from, last
  for status = 200, 600 do
    local outcome = status < 600 and verdict(policy, { status = status }) or nil
    if outcome ~= last then
      local text = from ~= status - 1 and ("%s-%d"):format(from, status - 1) or tostring(from)
      if last then add(into, last, "status", text) end
      from, last = status, outcome
    end
  end
end

--- Names of a kind: only if the policy looks at them at all.
local function try_names(policy, into, kind, names, make)
  local outcomes, without, matters = {}, verdict(policy, make(nil)), false
  for i, name in ipairs(names) do
    outcomes[i] = verdict(policy, make(name))
    matters = matters or outcomes[i] ~= without
  end
  for i, name in ipairs(matters and names or {}) do add(into, outcomes[i], kind, name) end
end

--- { success = { status = { "200-399" } }, failure = { status = …, ended_by = … }, neutral = … }
---@param policy neap.Policy
---@return table<neap.Outcome.classified, table<string, string[]>>
function verdicts.of(policy)
  local into = { success = {}, failure = {}, neutral = {} }
  try_statuses(policy, into)
  for _, ended_by in ipairs(ENDS) do
    add(into, verdict(policy, { ended_by = ended_by }), "ended_by", ended_by)
  end
  try_names(policy, into, "code", sorted_names(library.ofrep.code), function(name)
    return { status = 400, code = name }
  end)
  try_names(policy, into, "gRPC", sorted_names(library.grpc.code), function(name)
    return { status = 200, grpc_status = name }
  end)
  return into
end

--- One outcome's as a line: "status 429, 500-599; timeout, transport".
function verdicts.line(kinds)
  local parts = {}
  for _, kind in ipairs { "status", "ended_by", "code", "gRPC" } do
    local texts = kinds[kind] and table.concat(kinds[kind], ", ")
    if texts then parts[#parts + 1] = kind == "ended_by" and texts or kind .. " " .. texts end
  end
  return table.concat(parts, "; ")
end

return verdicts
