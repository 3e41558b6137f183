--- A fallback's answer as a proxy sends it, in place of a server's.
--
-- Left out of its headers is what is not for it to say: what frames a message or is for one
-- connection, which the proxy says; what neap says (Retry-After only where it knows better); and
-- what no header can be, as when a policy's function has made it of something that a client sent.
-- That is told as a fault.

local answers = require "neap.answer"
local proxied = require "neap.proxied"

local answer = {}

local NOT_ITS_OWN = {} -- by their names in lower case
for name in ([[
  connection http2-settings keep-alive proxy-authenticate proxy-authorization proxy-connection te
  trailer transfer-encoding upgrade content-length age cache-control neap-source
]]):gmatch("%S+") do NOT_ITS_OWN[name] = true end

local NO_BODY = { [204] = true, [205] = true, [304] = true }

local function own_headers(headers, told, has_retry_after)
  local own = {}
  for i = 1, #headers, 2 do
    local name, value = headers[i], headers[i + 1]
    local fault = answers.header_fault(name, value)
    if fault then
      told("its answer's " .. fault .. ": left out")
    else
      local lower = name:lower()
      if not NOT_ITS_OWN[lower] and not (has_retry_after and lower == "retry-after") then
        own[#own + 1], own[#own + 2] = name, tostring(value)
      end
    end
  end
  return own
end

--- What is sent; nil: there is no way to say it in HTTP, which has been told.
---@param of_guard neap.Guard whose chain has answered
---@param value any what it answered
---@param info neap.Info
---@param retry_after_ms? integer when asking the server again may help
---@return { status: integer, headers: string[], body: string }|nil
function answer.of(of_guard, value, info, retry_after_ms)
  local function told(fault) of_guard:fault("fallback." .. info.source, fault) end
  local ok, made = pcall(answers.of, value)
  if not ok then return told("its answer " .. tostring(made)) end
  local has_retry_after = retry_after_ms and made.status >= 400
  local headers = own_headers(made.headers, told, has_retry_after)
  local function add(name, text) headers[#headers + 1], headers[#headers + 2] = name, text end
  add("Neap-Source", info.source)
  add("Cache-Control", "no-store")
  if info.age_ms then add("Age", ("%d"):format(math.floor(info.age_ms / 1000))) end
  if has_retry_after then
    add("Retry-After", ("%d"):format(proxied.seconds(retry_after_ms)))
  end
  return {
    status = made.status, headers = headers, body = NO_BODY[made.status] and "" or made.body,
  }
end

return answer
