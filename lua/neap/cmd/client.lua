--- Asks the admin pages of a neap that runs.

local core = require "neap.core"
local json = require "neap.cmd.json"
local readers = require "neap.cmd.readers"

local client = {}

local DEFAULT = "127.0.0.1:9464"
local LONGEST_TOKEN = 1024

local function read_admin(value)
  local read, expected = readers.listen(value)
  if read and read.host == "0.0.0.0" then read.host = "127.0.0.1" end
  if read and read.host == "::" then read.host = "::1" end
  return read, expected
end

--- For neap.cmd.options: what every command has that asks.
client.options = {
  { name = "admin", value = "ADDRESS", example = DEFAULT, read = read_admin,
    help = "the admin pages of the neap that is asked;\n127.0.0.1:9464 if not given" },
  { name = "admin-token-file", value = "FILE", example = "/run/secrets/neap",
    help = "the one that it was started with" },
}

--- A part of a path.
---@param text string
function client.encode(text)
  return (text:gsub("[^%w_.~-]", function(c) return ("%%%02X"):format(c:byte()) end))
end

local function url_of(given, path)
  local at = given.admin or readers.listen(DEFAULT)
  local host = at.host:find(":", 1, true) and "[" .. at.host .. "]" or at.host
  return ("http://%s:%d%s"):format(host, at.port, path), ("%s:%d"):format(host, at.port)
end

local function token_of(given)
  local path = given["admin-token-file"]
  if not path then return nil end
  local text, message = core.read(path, LONGEST_TOKEN)
  if not text then return nil, message end
  local token = text:match("^(%S+)%s*$")
  if token then return token end
  return nil, path .. ": must have the token and nothing else"
end

--- What an answer that is none says, in a line; and its status, if it is neap's.
local function refusal_of(status, body, where, path)
  local problem = json.decode(body)
  local said = type(problem) == "table" and (problem.detail or problem.title)
  if type(said) ~= "string" then
    return ("%s: answers %s with %d: is that neap's admin address?"):format(where, path, status)
  elseif status == 401 then
    return where .. ": needs its token: --admin-token-file FILE"
  end
  return said, status
end

--- Whom the options name, for who asks in a way of his own.
---@param given table options that were given
---@return { host: string, port: integer, where: string, token?: string }
function client.target(given)
  local at = given.admin or readers.listen(DEFAULT)
  local _, where = url_of(given, "/")
  return { host = at.host, port = at.port, where = where, token = (token_of(given)) }
end

--- What a page says; or nil, why not in a line, and the status it was refused with: none if nobody
--- could be asked.
---@param host neap.cmd.host
---@param given table options that were given
---@param method "GET"|"POST"
---@param path string
---@param value? table to be sent
---@param is_right fun(said: table): boolean whether it is what that page of neap's says
---@return table|nil said, string|nil message, integer|nil refused
function client.ask(host, given, method, path, value, is_right)
  local url, where = url_of(given, path)
  local token, message = token_of(given)
  if message then return nil, message end
  local status, body = host.fetch(method, url, token, value and json.encode(value))
  if not status then
    return nil, ("%s: %s; is neap serve running, with its admin pages there? --admin ADDRESS says "
      .. "where"):format(where, body)
  end
  local said = status == 200 and json.decode(body)
  if type(said) == "table" and is_right(said) then return said end
  return nil, refusal_of(status, body, where, path)
end

return client
