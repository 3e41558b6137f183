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

--- Why another page's browser sent this, or nil: it is the page's own, or no browser's.
---
--- What the browser says itself decides, which no page can set or send twice.  It says so to https
--- and to this machine only, hence never to a name that was rebound to a proxy without TLS.  Where
--- it says nothing, or that no page began it ("none"), Origin has to be where it was sent to.
local function why_foreign(headers)
  local site, origin = headers["sec-fetch-site"], headers.origin
  if site == "same-origin" then return nil end
  if site and site ~= "none" then return "sent for another page: Sec-Fetch-Site: " .. site end
  local own = "://" .. (headers.host or "") -- https where another server is in between
  if not origin or origin == "http" .. own or origin == "https" .. own then return nil end
  return ("Origin: %s is not Host: %s; a proxy in between must pass Host or Sec-Fetch-Site on")
    :format(origin, headers.host or "")
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
  local why = why_foreign(headers)
  return why and problem(403, "Not from another page", why) or nil
end

return access
