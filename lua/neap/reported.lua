--- Checks the table that guard:report is given.  A misspelt field would count a failure as a
--- success, and so would a table that says nothing.

local problem = require "neap.problem"
local suggest = require "neap.suggest"

local next, rawget = next, rawget

local reported = {}

--- The fields there are (lua/types/call.lua): true for those that say how the call went.
local FIELDS = {
  status = true, grpc_status = true, code = true, headers = true, body = true,
  result = true, error = true, raised = true, ended_by = true, duration_ms = true,
  phase = false, key = false, args = false, id = false, request = false,
  cause = false, refused = false, reason = false, retry_after_ms = false,
}
local ENDS = { answer = true, timeout = true, transport = true, caller = true, bulkhead = true }
local SAYS_NOTHING = "the report does not say how the call went: give one of status, grpc_status, "
  .. "code, result, error, raised and ended_by, or \"success\" in place of the table"
local NO_FIELD = "the report's %s is no field of a call%s (what else a policy needs goes into args)"
local LEVEL = 4 -- of who called guard:report, seen from check

--- The fields that a call may have.
reported.fields = FIELDS

local function names_of(set)
  local names = {}
  for name in next, set do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function refuse_field(field)
  local shown = type(field) == "string" and #field <= 40 and field or problem.shown(field)
  error(NO_FIELD:format(shown, suggest.hint(field, names_of(FIELDS))), LEVEL + 1)
end

local function refuse_end(ended_by)
  local known = names_of(ENDS)
  error(("the report's ended_by is %s, not one of %s%s"):format(problem.shown(ended_by),
    table.concat(known, ", "), suggest.hint(ended_by, known)), LEVEL + 1)
end

--- Raises if a report has a field or an ended_by that is not known, or does not say how the call
--- went.  Takes no memory otherwise; all is read raw.
---@param given table
function reported.check(given)
  local says = false
  for field in next, given do
    local tells = FIELDS[field]
    if tells then
      says = true
    elseif tells == nil then
      refuse_field(field)
    end
  end
  if not says then error(SAYS_NOTHING, LEVEL) end
  local ended_by = rawget(given, "ended_by")
  if ended_by and not ENDS[ended_by] then refuse_end(ended_by) end
end

return reported
