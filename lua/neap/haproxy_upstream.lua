--- What HAProxy knows about a request's server, as the calls that policies classify.
--
--   server's answer       as it is                                  ended_by = "answer"
--   HAProxy's 504         the server was too slow                   "timeout"
--   HAProxy's 502         what came was no answer                   "transport"
--   HAProxy's 503         no connection, or no server that is up    "transport"
--   ... no server chosen  it waited in the backend's queue too long "bulkhead"
--   anything else         a rule of HAProxy's: no call

local proxied = require "neap.proxied"

local upstream = {}
local PLAIN = proxied.PLAIN

local RETRY = { [429] = true, [503] = true }

--- Whether a policy takes all of 200 to 399 for successes.
---@param policy neap.Policy
---@return boolean
function upstream.is_plain(policy)
  return PLAIN[policy.config.classify] ~= nil and not policy.candidate
    and proxied.is_plain(policy.classify)
end

--- gRPC's status, where an answer is nothing but trailers, which are its header then.
---@return string|nil
function upstream.grpc_status(txn) return txn.f:res_fhdr("grpc-status") end

--- Whether a policy that takes HTTP's successes for such goes by gRPC's status, too.
---@param policy neap.Policy
---@return boolean
function upstream.may_be_grpc(policy) return policy.config.classify == "classify.default" end

--- Headers as policies see them: HAProxy counts values from 0.
---@param given table<string, table> as HAProxy has them
---@return table<string, string|string[]>
function upstream.headers(given)
  local headers = {}
  for name, values in pairs(given) do
    headers[name] = values[0]
    if values[1] then
      local list = { values[0] }
      for i = 1, #values do list[i + 1] = values[i] end
      headers[name] = list
    end
  end
  return headers
end

--- Trailers that follow a body come too late: a call whose answer has one began well.
local function begun(headers)
  local kind = headers["content-type"]
  return type(kind) == "string" and kind:find("^application/grpc") and 0 or nil
end

--- The call that the server has answered with that status; without its duration.
---@param policy neap.Policy
---@param status integer
---@return neap.Call
function upstream.answer(txn, policy, status)
  local call = { status = status }
  if not PLAIN[policy.config.classify] then
    call.headers = upstream.headers(txn.http:res_get_headers())
    call.grpc_status = call.headers["grpc-status"] or begun(call.headers)
    return call
  end
  if upstream.may_be_grpc(policy) then call.grpc_status = upstream.grpc_status(txn) end
  if RETRY[status] then
    call.headers = {
      ["retry-after"] = txn.f:res_fhdr("retry-after"), date = txn.f:res_fhdr("date"),
    }
  end
  return call
end

--- The call that no server has answered; nil: it was no call.
---@return neap.Call|nil
function upstream.none(txn)
  local status = txn.f:status()
  if txn.f:srv_name() then
    if status == 504 then return { ended_by = "timeout", phase = "header" } end
    if status == 502 then return { ended_by = "transport", phase = "header" } end
    if status == 503 then return { ended_by = "transport", phase = "connect" } end
  elseif status == 503 then
    local is_down = txn.f:nbsrv() == 0
    return { ended_by = is_down and "transport" or "bulkhead", phase = "connect" }
  end
end

return upstream
