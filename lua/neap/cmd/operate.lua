--- neap status, mode, trip, reset and params: what asks a neap that runs, and tells it what to do.
---
--- Exit status: 0 done, or all is well; 1 it is not, or was refused; 2 the command line is wrong;
--- 3 nobody could be asked.

local characters = require "neap.characters"
local client = require "neap.cmd.client"
local json = require "neap.cmd.json"
local parameters = require "neap.parameters"
local status = require "neap.cmd.status"

local operate = {}

local OK, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3

--- What a command was given; or an exit status, if that is all.
---@class neap.cmd.Command
---@field name string
---@field spec neap.cmd.option[]
---@field help string with %s for the options

local function with(...)
  local spec = { ... }
  for _, option in ipairs(client.options) do spec[#spec + 1] = option end
  return spec
end

local BY = { name = "by", value = "NAME", example = "alice",
  help = "who does this; $USER if not given" }
local REASON = { name = "reason", value = "TEXT", example = "drill", help = "why; for the log" }
local FOR = { name = "for", value = "TIME", example = "10m",
  help = "when it ends by itself: 90s, 10m, 2h; without, not at all" }
local OPEN_FOR = { name = "for", value = "TIME", example = "30s",
  help = "how long; without, the policy's cooldown" }
local JSON = { name = "json", help = "the same as JSON" }
local UNSET = { name = "unset", value = "NAME", example = "timeout_ms", many = true,
  help = "takes back what was set" }

operate.specs = {
  status = with(JSON), mode = with(FOR, BY, REASON), trip = with(OPEN_FOR, BY, REASON),
  reset = with(BY, REASON), params = with(UNSET, BY, REASON, JSON),
}

-- ---- Asking -----------------------------------------------------------------------------------

--- Says why it did not work, and answers with which status the program ends.
local function say_failure(self, message, refused)
  self.host.err(("neap %s: %s\n"):format(self.name, characters.printable(message)))
  return refused and FAILED or UNREACHABLE
end

local function usage(self, message)
  self.host.err(("neap %s: %s; see neap %s --help\n"):format(self.name, message, self.name))
  return USAGE
end

local function has_texts(row, ...)
  if type(row) ~= "table" then return false end
  for i = 1, select("#", ...) do
    if type(row[select(i, ...)]) ~= "string" then return false end
  end
  return true
end

local function is_breaker(row)
  return has_texts(row, "policy", "key", "state") and type(row.totals) == "table"
end

--- Of a page that has a list of such rows under that name.
local function has_rows(name, is_row)
  return function(said)
    if type(said[name]) ~= "table" then return false end
    for _, row in ipairs(said[name]) do
      if not is_row(row) then return false end
    end
    return true
  end
end

local has_breakers = has_rows("breakers", is_breaker)
local has_policies = has_rows("policies", function(row) return has_texts(row, "name") end)
local has_params = has_rows("params", function(row) return has_texts(row, "name", "from") end)

local function ask(self, method, path, value, is_right)
  return client.ask(self.host, self.given, method, path, value, is_right)
end

--- POLICY or POLICY/KEY; a key may have slashes.
local function target_of(text)
  local policy, key = text:match("^([^/]+)/(.+)$")
  return policy or text, key
end

local function page_of(policy, key)
  local page = "/breakers"
  if policy then page = page .. "/" .. client.encode(policy) end
  return key and page .. "/" .. client.encode(key) or page
end

--- The rows of the breakers that are meant: all, one policy's, or one.
local function rows_of(self, text)
  local policy, key
  if text then policy, key = target_of(text) end
  local said, message, refused =
    ask(self, "GET", page_of(policy, key), nil, key and is_breaker or has_breakers)
  if not said then return nil, message, refused end
  return key and { said } or said.breakers
end

--- Of the policies' rows those that are that one's: its own, and of what has no hash, as parameter
--- files.
local function rows_for(rows, text)
  if not text then return rows end
  local policy, of_policy = target_of(text), {}
  for _, row in ipairs(rows) do
    if row.name == policy or row.hash == nil then of_policy[#of_policy + 1] = row end
  end
  return of_policy
end

-- ---- Commands ---------------------------------------------------------------------------------

local commands = {}

function commands.status(self)
  if #self.given > 1 then return usage(self, "one POLICY or POLICY/KEY at most") end
  local breakers, message, refused = rows_of(self, self.given[1])
  if not breakers then return say_failure(self, message, refused) end
  local policies
  policies, message, refused = ask(self, "GET", "/policies", nil, has_policies)
  if not policies then return say_failure(self, message, refused) end
  policies = rows_for(policies.policies, self.given[1])
  if self.given.json then
    self.host.out(json.encode { breakers = json.list(breakers), policies = json.list(policies) }
      .. "\n")
  else
    self.host.out(status.text(breakers, policies, { colours = self.colours }))
  end
  return status.is_well(breakers, policies) and OK or FAILED
end

local GONE, TWO = 404, 409

--- Does something to each of the breakers that are meant, and shows them.  One that is gone by then
--- keeps it from none of the others.
local function act(self, verb, more)
  local by = self.given.by or self.host.env("USER")
  if not by or by == "" then return usage(self, "--by NAME: say who does this") end
  local rows, message, refused = rows_of(self, self.given[1])
  if not rows then return say_failure(self, message, refused) end
  local done, result = {}, OK
  for _, row in ipairs(rows) do
    local sent = { by = by, reason = self.given.reason, ["for"] = self.given["for"] }
    for name, value in pairs(more or {}) do sent[name] = value end
    done[#done + 1], message, refused =
      ask(self, "POST", page_of(row.policy, row.key) .. "/" .. verb, sent, is_breaker)
    if refused == GONE or refused == TWO then
      message = ("%s/%s: %s"):format(row.policy, row.key, message)
    end
    if message then result = say_failure(self, message, refused) end
    if message and refused ~= GONE and refused ~= TWO then break end
  end
  self.host.out(status.text(done, {}, { colours = self.colours }))
  return result
end

function commands.mode(self)
  if #self.given ~= 2 then
    return usage(self, "which breaker, and which mode? E.g. neap mode flags forced_open --for 10m")
  end
  return act(self, "mode", { mode = self.given[2] })
end

function commands.trip(self)
  if #self.given ~= 1 then return usage(self, "which breaker? E.g. neap trip flags --for 30s") end
  return act(self, "trip")
end

function commands.reset(self)
  if #self.given ~= 1 then return usage(self, "which breaker? E.g. neap reset flags") end
  return act(self, "reset")
end

--- failures = 5  (default; a whole number from 1 to 100)
local function param_line(row)
  local value = row.value
  if value == json.null then value = nil end
  return ("%s = %s  (%s%s)"):format(row.name, parameters.inline(value), row.from,
    type(row.takes) == "string" and "; " .. row.takes or "")
end

local function show_params(self, said)
  if self.given.json then
    self.host.out(json.encode(said) .. "\n")
    return OK
  end
  if not said.params[1] then
    self.host.out(said.declared and "it declares that it takes none\n"
      or "none is set, and the policy declares none\n")
  end
  for _, row in ipairs(said.params) do
    local text = said.declared and param_line(row)
      or ("%s  (%s; not declared, so its value is not shown)"):format(row.name, row.from)
    self.host.out(characters.printable(text) .. "\n")
  end
  return OK
end

--- NAME=VALUE …: what is to be set; nil and what is wrong.
local function pairs_of(given)
  local parts = {}
  for i = 2, #given do
    local name, value = given[i]:match("^([%a_][%w_]*)=(.*)$")
    if not name then return nil, given[i] .. ": must be NAME=VALUE" end
    parts[#parts + 1] = client.encode(name) .. "=" .. client.encode(value)
  end
  return parts
end

function commands.params(self)
  local policy = self.given[1]
  if not policy then return usage(self, "which policy? E.g. neap params flags") end
  local page = "/policies/" .. client.encode(policy) .. "/params"
  local texts, message = pairs_of(self.given)
  if not texts then return usage(self, message) end
  local said, refused
  if texts[1] or self.given.unset then
    local by = self.given.by or self.host.env("USER")
    if not by or by == "" then return usage(self, "--by NAME: say who does this") end
    -- In the query they are texts, which stand for what the params' types say.
    said, message, refused = ask(self, "POST", page .. "?" .. table.concat(texts, "&"),
      { by = by, reason = self.given.reason, unset = self.given.unset }, has_params)
  else
    said, message, refused = ask(self, "GET", page, nil, has_params)
  end
  if not said then return say_failure(self, message, refused) end
  return show_params(self, said)
end

--- Runs one of them.
---@param name string
---@param given table as neap.cmd.options read it
---@param host neap.cmd.host
---@param colours boolean
---@return integer exit_status
function operate.run(name, given, host, colours)
  return commands[name] { name = name, given = given, host = host, colours = colours }
end

return operate
