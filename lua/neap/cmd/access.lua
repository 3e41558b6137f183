--- Who may ask the admin pages.
---
--- With a token, whoever has it.  Without one the host listens on a loopback address only; then a
--- browser on this machine is the danger, so a Host that is a name (DNS rebinding) is refused, and
--- so is a change that another page asks for.

local problem = require("neap.cmd.answers").problem

local access = {}

--- Takes as long for a wrong token as for the right one.
local function is_same(a, b)
  local difference = #a == #b and 0 or 1
  for i = 1, #a do
    if a:byte(i) ~= b:byte((i - 1) % #b + 1) then difference = difference + 1 end
  end
  return difference == 0
end

--- A page may have its own name resolve to 127.0.0.1; it cannot be an address or "localhost".
local function is_own_host(text)
  local host = text:gsub(":%d+$", ""):lower()
  return host == "localhost" or host:find("^%d+%.%d+%.%d+%.%d+$") ~= nil
    or host:find("^%[[%x:.]+%]$") ~= nil
end

--- Nil if the request may be answered, else what to answer instead.
---@param request neap.admin.request
---@param token? string  what the client must know; nil: only this machine can ask
---@param may_have_token? boolean  whether the host takes one, by --admin-token-file
---@return neap.admin.answer?
function access.refusal(request, token, may_have_token)
  local headers = request.headers
  if token then
    local given = (headers.authorization or ""):match("^[Bb]earer +(%S+)%s*$")
    if not given or not is_same(given, token) then
      return problem(401, "A token is needed",
        "send Authorization: Bearer TOKEN, with the text of --admin-token-file",
        { ["WWW-Authenticate"] = 'Bearer realm="neap"' })
    end
  elseif not is_own_host(headers.host or "localhost") then
    return problem(403, "Not by this name",
      ("Host: %s is a name; ask for localhost or an address%s")
      :format(headers.host, may_have_token and ", or use --admin-token-file" or ""))
  end
  if request.method == "GET" or request.method == "HEAD" then return nil end
  local origin, site = headers.origin, headers["sec-fetch-site"]
  local own = "://" .. (headers.host or "") -- https where another server is in between
  if (origin and origin ~= "http" .. own and origin ~= "https" .. own)
    or (site and site ~= "same-origin" and site ~= "none") then
    return problem(403, "Not from another page", "a browser sent this for "
      .. (origin or "another site"))
  end
end

return access
