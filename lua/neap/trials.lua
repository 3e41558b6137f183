--- Calls of every kind, on which a policy's classify is tried before it serves.

local trials = {
  { title = "status 200", status = 200, ended_by = "answer", phase = "body", body = "{}" },
  { title = "status 404", status = 404, ended_by = "answer", phase = "body", body = "" },
  { title = "status 429", status = 429, ended_by = "answer", phase = "body", body = "" },
  { title = "status 503", status = 503, ended_by = "answer", phase = "headers" },
  { title = "a timeout", ended_by = "timeout", phase = "sent", error = "timeout" },
  { title = "no connection", ended_by = "transport", phase = "connect", error = "refused" },
  { title = "a caller who left", ended_by = "caller", phase = "sent" },
  { title = "our own bulkhead", ended_by = "bulkhead" },
  { title = "gRPC status 14", status = 200, ended_by = "answer", phase = "body", grpc_status = 14 },
  { title = "a result", ended_by = "answer", result = true },
  { title = "an error", ended_by = "answer", error = "it broke" },
  { title = "a raised table", ended_by = "answer", raised = true, error = { message = "broken" } },
}

local FIELDS = { "status", "ended_by", "phase", "body", "error", "grpc_status", "result", "raised" }

--- The call of a trial, made anew: a policy may keep or change what it is given.
function trials.call(trial)
  local call = {
    headers = {}, duration_ms = 5, key = "default", args = { n = 0 },
    request = { method = "GET", target = "/", headers = {} },
  }
  for _, name in ipairs(FIELDS) do call[name] = trial[name] end
  if type(trial.error) == "table" then call.error = { message = trial.error.message } end
  return call
end

return trials
