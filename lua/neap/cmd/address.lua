--- Addresses and URLs as people write them on a command line or in a configuration file.
--- Each reader answers the parts, or nil and what would be right.

local address = {}

local function port_of(text)
  local port = text:match("^%d+$") and tonumber(text)
  if port and port <= 65535 then return port end
end

local function is_ipv4(text)
  local parts = { text:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$") }
  for _, part in ipairs(parts) do
    if tonumber(part) > 255 then return false end
  end
  return #parts == 4
end

local function is_ipv6(text)
  return text:find(":", 1, true) ~= nil and text:match("^[%x:%.]+$") ~= nil
end

--- "127.0.0.1:8080", "[::1]:8080", "localhost:8080" or ":8080" (every address of this machine).
---@return { host: string, port: integer, text: string, loopback: boolean }?
---@return string? expected
function address.listen(text)
  local expected = "must be ADDRESS:PORT, e.g. 127.0.0.1:8080 or [::1]:8080"
  local host, port = text:match("^%[([^%]]+)%]:(%d+)$")
  if host and not is_ipv6(host) then return nil, expected end
  if not host then
    host, port = text:match("^([^:%[%]]*):(%d+)$")
    if not host then return nil, expected end
    if host == "" then host = "0.0.0.0" end
    if host == "localhost" then host = "127.0.0.1" end
    if not is_ipv4(host) then return nil, expected .. "; a name is not looked up here" end
  end
  port = port_of(port)
  if not port then return nil, "the port must be 0 to 65535 (0: any free one)" end
  return { host = host, port = port, text = text, loopback = address.is_loopback(host) }
end

--- Is it an address that only this machine reaches?
function address.is_loopback(host)
  return host:match("^127%.%d+%.%d+%.%d+$") ~= nil or host == "::1" or host == "localhost"
end

--- Would the one keep the other from listening? "::" is every address, of either kind.
---@param a { host: string, port: integer }
---@param b { host: string, port: integer }
function address.clash(a, b)
  if a.port ~= b.port or a.port == 0 then return false end
  local function covers(one, other)
    return one.host == other.host or one.host == "::"
      or one.host == "0.0.0.0" and is_ipv4(other.host)
  end
  return covers(a, b) or covers(b, a)
end

--- The parts of a URL: "http", "host:port", "/path?query".
local function url_parts(text)
  local scheme, rest = text:match("^(%a[%w+.-]*)://(.*)$")
  if not scheme then return nil, "must be a URL, e.g. http://127.0.0.1:8016" end
  scheme = scheme:lower()
  if scheme ~= "http" and scheme ~= "https" then
    return nil, "must begin with http:// or https://"
  end
  return scheme, rest:match("^([^/?#]*)(.*)$")
end

local function authority(text)
  if text:find("@", 1, true) then return nil, "must not carry a user name or password" end
  local host, port = text:match("^%[([%x:%.]+)%]:?(%d*)$")
  if not host then host, port = text:match("^([%w%.%-_]+):?(%d*)$") end
  if not host then return nil, "must name a host, e.g. http://127.0.0.1:8016" end
  if text:match(":$") then return nil, "has a colon but no port" end
  if port == "" then return host end
  if not port_of(port) or port_of(port) == 0 then return nil, "the port must be 1 to 65535" end
  return host, port_of(port)
end

--- "http://host[:port]" or "https://…", with nothing after it: requests keep their own path.
---@return { scheme: string, host: string, port: integer, text: string }?
---@return string? expected
function address.upstream(text)
  local scheme, where, path = url_parts(text)
  if not scheme then return nil, where end
  if path ~= "" and path ~= "/" then
    return nil, "must end after the host and port: a request keeps its own path"
  end
  local host, port = authority(where)
  if not host then return nil, port end
  port = port or (scheme == "https" and 443 or 80)
  return { scheme = scheme, host = host, port = port, text = scheme .. "://" .. where }
end

--- "https://host[:port][/path][?query]": where something is posted to.
---@return { origin: string, host: string, target: string, text: string }?
---@return string? expected
function address.webhook(text)
  local scheme, where, target = url_parts(text)
  if not scheme then return nil, where end
  if target:find("[%c \127#]") then return nil, "must have no blank and no # in it" end
  local host, fault = authority(where)
  if not host then return nil, fault end
  if target:sub(1, 1) ~= "/" then target = "/" .. target end
  return { origin = scheme .. "://" .. where, host = where, target = target, text = text }
end

return address
