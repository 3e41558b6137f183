--- GET /events: what happens from now on, or from where the client has been before: one message
--- after the other, false when there is none for now.

local arguments = require "neap.cmd.arguments"
local problem = require("neap.cmd.answers").problem

local NO_EVENTS = "this host keeps no events: its log has them, a policy's on_transition is told"
local MANY_FOLLOW = "as many clients follow as may"
local RECENT = "last: how many of the last events, e.g. last=20"

---@param request neap.admin.request
---@param follow? function  as of neap.admin.options
---@return neap.admin.answer
return function(request, follow)
  if not follow then return problem(501, "Not here", NO_EVENTS) end
  local given, message = arguments.read({}, request.target:match("%?([^#]*)") or "")
  if not given then return problem(400, "Not understood", message) end
  local recent = given.last and tonumber(given.last)
  if given.last and not (recent and recent >= 0 and recent % 1 == 0) then
    return problem(400, "Not understood", RECENT)
  end
  local answer = { status = 200, type = "text/event-stream", body = "",
    headers = { ["X-Accel-Buffering"] = "no" } } -- for an nginx in between
  if request.method == "HEAD" then return answer end
  local follower = follow(request.headers["last-event-id"], recent)
  if not follower then return problem(503, "Too many", MANY_FOLLOW, { ["Retry-After"] = "10" }) end
  answer.body = function() return follower:text() end
  answer.over = function() follower:close() end
  return answer
end
