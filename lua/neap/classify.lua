--- What a finished call says about the dependency.
--
--   ended_by = "caller", "bulkhead"     neutral: it is not the dependency's doing
--   ended_by = "timeout", "transport"   failure
--   an answer                           by its gRPC status, flag provider's code or HTTP status
--   no answer of any of these kinds     failure if there is an error, else success
--
-- Each classifier is a table that can be called: classify.http(call) -> outcome, reason,
-- retry_after_ms. What it goes by is in the table, to be printed or changed.  A policy file has
-- tables of its own:
--
--   classify.http.status[429] = "neutral"     -- here, too many requests is our own fault

local retry_after = require "neap.retry_after"
local suggest = require "neap.suggest"

local type, rawget, find, match, sub = type, rawget, string.find, string.match, string.sub
local tonumber, upper = tonumber, string.upper

---@alias neap.Outcome.classified
---| "success" # the dependency did its work
---| "failure" # it did not
---| "neutral" # the call says nothing about it

---@class neap.Classifier
---@overload fun(call: neap.Call): neap.Outcome.classified, string?, integer?

local DEEPEST_CAUSE = 16
local MOST_KINDS, LONGEST_KIND = 100, 100
local TEXT_LOOKED_AT = 4096 -- bytes, of an error's text or a body

-- The classifiers there are, by their names in the library they were made for; true for others.
-- Nothing in here may lead to a library: where a weak table's values keep its keys alive (Lua 5.1),
-- that would be for good.
local made = setmetatable({}, { __mode = "k" })

local function classifier(fields, call)
  made[fields] = true
  return setmetatable(fields, { __call = call, __metatable = false })
end

--- Our own end of the call: whatever it looks like, it says nothing of a dependency that did
--- nothing.
local function is_own(ended_by)
  return ended_by == "caller" or ended_by == "bulkhead"
end

-- ---- By how it ended --------------------------------------------------------------------------

local function new_transport()
  return classifier({
    ended_by = {
      timeout = "failure", transport = "failure", caller = "neutral", bulkhead = "neutral",
    },
  }, function(self, call)
    local ended_by = call.ended_by
    if ended_by ~= nil and ended_by ~= "answer" then
      return self.ended_by[ended_by] or "failure", ended_by
    end
    if call.raised then return "failure", "raised" end
    if call.error ~= nil and not call.result then return "failure", "error" end
    return "success"
  end)
end

-- ---- HTTP -------------------------------------------------------------------------------------

-- The first digit of each status there can be; nothing for what is none.
local CLASS = {}
for status = 100, 599 do CLASS[status] = math.floor(status / 100) end

local function new_http(transport)
  return classifier({
    class = { [1] = "success", [2] = "success", [3] = "success", [4] = "neutral", [5] = "failure" },
    status = { [429] = "failure", [499] = "neutral" },
    retry_after = { [429] = true, [503] = true },
  }, function(self, call)
    local ended_by, status = call.ended_by, call.status
    if status == nil or ended_by ~= nil and ended_by ~= "answer" then return transport(call) end
    local class = CLASS[status]
    local verdict = class and (self.status[status] or self.class[class])
    if verdict == "success" then return verdict end
    if not verdict then return "failure", "no HTTP status" end
    local says_when = verdict == "failure" and self.retry_after[status]
    return verdict, "status " .. status, says_when and retry_after.ms(call.headers) or nil
  end)
end

-- ---- gRPC -------------------------------------------------------------------------------------

local GRPC_NAMES = {
  [0] = "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
  "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
  "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

--- The name of a status given as a number, as the header's digits, or by name; the text itself if
--- it is none that gRPC knows.
local function grpc_name(status)
  local number = tonumber(status)
  if number then return GRPC_NAMES[number] or ("%.14g"):format(number) end
  if type(status) ~= "string" then return type(status) end
  local name = upper(status)
  return name == "CANCELED" and "CANCELLED" or name
end

local function new_grpc(transport, http)
  return classifier({
    code = {
      OK = "success", CANCELLED = "neutral", UNKNOWN = "failure", INVALID_ARGUMENT = "neutral",
      DEADLINE_EXCEEDED = "failure", NOT_FOUND = "neutral", ALREADY_EXISTS = "neutral",
      PERMISSION_DENIED = "neutral", RESOURCE_EXHAUSTED = "failure",
      FAILED_PRECONDITION = "neutral", ABORTED = "neutral", OUT_OF_RANGE = "neutral",
      UNIMPLEMENTED = "neutral", INTERNAL = "failure",
      UNAVAILABLE = "failure", DATA_LOSS = "failure", UNAUTHENTICATED = "neutral",
    },
    other = "failure", -- a code that gRPC does not know counts as UNKNOWN
  }, function(self, call)
    local ended_by = call.ended_by
    if ended_by ~= nil and ended_by ~= "answer" then return transport(call) end
    local status = call.grpc_status
    if status == nil then status = retry_after.header(call.headers, "grpc-status") end
    if status == nil then
      if call.status == 200 then return self.other, "no gRPC status" end
      return http(call)
    end
    local name = grpc_name(status)
    local verdict = self.code[name] or self.other
    if verdict == "success" then return verdict end
    return verdict, name
  end)
end

-- ---- Flag providers (OFREP, OpenFeature) ------------------------------------------------------

--- The errorCode in a body of JSON: looked for, not parsed.
local function body_code(body)
  if type(body) ~= "string" then return nil end
  local at = find(body, '"errorCode"', 1, true)
  if not at or at > TEXT_LOOKED_AT then return nil end
  return (match(body, '^"errorCode"%s*:%s*"([%u_]+)"', at))
end

local function new_ofrep(transport, http)
  return classifier({
    code = {
      FLAG_NOT_FOUND = "neutral", PARSE_ERROR = "neutral", INVALID_CONTEXT = "neutral",
      TARGETING_KEY_MISSING = "neutral", TYPE_MISMATCH = "neutral", PROVIDER_NOT_READY = "failure",
      PROVIDER_FATAL = "failure", GENERAL = "failure",
    },
  }, function(self, call)
    local ended_by = call.ended_by
    if ended_by ~= nil and ended_by ~= "answer" then return transport(call) end
    local code, class = call.code, CLASS[call.status]
    if code == nil and class and class >= 4 then code = body_code(call.body) end
    local verdict = self.code[code]
    if not verdict then return http(call) end
    return verdict, code
  end)
end

-- ---- By kind of error -------------------------------------------------------------------------

--- Whether one link of an error's chain is of that kind: a table says so in kind, code, name or
--- type; a text contains it.
local function is_kind(err, kind)
  if type(err) == "string" then return find(sub(err, 1, TEXT_LOOKED_AT), kind, 1, true) ~= nil end
  if type(err) ~= "table" then return err == kind end
  return rawget(err, "kind") == kind or rawget(err, "code") == kind or rawget(err, "name") == kind
    or rawget(err, "type") == kind
end

--- The first of `kinds` that the error is, or that one of its causes is; a chain that is endless or
--- runs in a circle is followed so far and no further.
local function kind_in_chain(err, kinds)
  for _ = 1, DEEPEST_CAUSE do
    for _, kind in ipairs(kinds) do
      if is_kind(err, kind) then return kind end
    end
    if type(err) ~= "table" then return nil end
    err = rawget(err, "cause")
    if err == nil then return nil end
  end
end

local LISTS = { "ignore", "record" }

local function check_lists(lists)
  if type(lists) ~= "table" then
    error("classify.errors: a table { record = {...}, ignore = {...} } is needed", 3)
  end
  local copy = { record = {}, ignore = {} }
  for key, kinds in next, lists do
    if not copy[key] then
      local hint = suggest.hint(key, LISTS)
      error(("classify.errors: %s is not known%s"):format(tostring(key), hint), 3)
    elseif type(kinds) ~= "table" then
      error(("classify.errors: %s must be a list of kinds, not a %s"):format(key, type(kinds)), 3)
    end
    for i, kind in ipairs(kinds) do
      if i > MOST_KINDS then
        error(("classify.errors: %s has more than %d kinds"):format(key, MOST_KINDS), 3)
      elseif type(kind) ~= "string" or kind == "" or #kind > LONGEST_KIND then
        error(("classify.errors: %s[%d] must be the name of a kind"):format(key, i), 3)
      end
      copy[key][i] = kind
    end
    for place in next, kinds do
      if copy[key][place] == nil then
        error(("classify.errors: %s is to be a list: [%s] is no place in it"):format(
          key, tostring(place)), 3)
      end
    end
  end
  return copy
end

--- Errors by lists of kinds.  Ignored goes first; with a record list, an error in neither is a
--- success.
---
---               in record      in neither, record list    in neither, none
---   ignored     neutral        neutral                    neutral
---   not         failure        success                    failure
local function new_errors(library)
  return function(lists)
    return classifier(check_lists(lists), function(self, call)
      local err = call.error
      if err == nil or is_own(call.ended_by) then return library.default(call) end
      local kind = kind_in_chain(err, self.ignore)
      if kind then return "neutral", kind end
      kind = kind_in_chain(err, self.record)
      if kind then return "failure", kind end
      if self.record[1] then return "success" end
      return "failure", "error"
    end)
  end
end

-- ---- The library ------------------------------------------------------------------------------

local function new_default(library)
  return classifier({}, function(_, call)
    local ended_by = call.ended_by
    if ended_by ~= nil and ended_by ~= "answer" then return library.transport(call) end
    if call.grpc_status ~= nil then return library.grpc(call) end
    if call.code ~= nil and library.ofrep.code[call.code] then return library.ofrep(call) end
    return library.http(call)
  end)
end

local NAMES = { "transport", "http", "grpc", "ofrep", "default" }

--- A library with tables of its own: each policy generation has one.  And the classifiers that are
--- in it, by name, for when the policy has put something else there.
local function new()
  local library = {}
  library.retry_after_ms = function(call) return retry_after.ms(call.headers) end
  library.transport = new_transport()
  library.http = new_http(library.transport)
  library.grpc = new_grpc(library.transport, library.http)
  library.ofrep = new_ofrep(library.transport, library.http)
  library.default = new_default(library)
  library.errors = new_errors(library)
  local originals = {}
  for _, name in ipairs(NAMES) do originals[name], made[library[name]] = library[name], name end
  setmetatable(library, {
    __metatable = false,
    __index = function(_, name)
      local names = {}
      for known in next, library do names[#names + 1] = known end
      error(("classify.%s is not known%s"):format(tostring(name), suggest.hint(name, names)), 2)
    end,
  })
  return library, originals
end

---@class neap.classify
---@field transport neap.Classifier by how the call ended
---@field http neap.Classifier 5xx and 429 are failures, other 4xx neutral
---@field grpc neap.Classifier by the gRPC status
---@field ofrep neap.Classifier by a flag provider's code, else as http
---@field default neap.Classifier by whichever of these the call has
---@field errors fun(lists: { record: string[]?, ignore: string[]? }): neap.Classifier
---@field retry_after_ms fun(call: neap.Call): integer|nil
local classify = new()
classify.new = new

--- The classifiers of a library, by name.
classify.names = NAMES

--- The name that a classifier had in its library, whatever the policy has put in its place; true
--- for one that never had any, nil for what is no classifier.
---@param value any
---@return string|true|nil
function classify.original_name(value) return made[value] end

--- Whether a value is a classifier of these.
---@param value any
---@return boolean
function classify.is_classifier(value) return made[value] ~= nil end

return classify
