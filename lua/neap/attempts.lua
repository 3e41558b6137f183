--- Attempts: what a reloader (neap.reload) does with one policy file, and what is said of it.
--
--   self   the reloader: what is handed in, its items, parameter files and environment
--   item   a file: what was seen and attempted, what of it serves, its errors, what operators set

local parameters = require "neap.parameters"
local policy_files = require "neap.policy_files"
local settings = require "neap.settings"
local watched = require "neap.watched"

local attempts = {}

local GONE_MS = 100 -- a file is missed after this long: saving may delete and create,
local ORPHAN_MS = 10000 -- and its policy is an orphan after this long

local function tell(self, item, kind, text)
  if not self.on_event then return end
  self.on_event {
    kind = kind,
    policy = item.name,
    path = item.path,
    hash = item.policy and item.policy.hash or "",
    text = text,
    at_ms = self.now(),
  }
end

--- The file is there, but what is in it does not serve.
function attempts.fail(self, item, err)
  item.error, item.is_gone, item.is_orphaned = tostring(err), nil, nil
  item.failures = item.failures + 1
  tell(self, item, "reload_failed", item.error)
end

--- The file as it was attempted is what serves.
function attempts.is_right(item)
  item.error, item.is_gone, item.is_orphaned = nil, nil, nil
  item.served, item.served_settings = item.attempted, item.settings
end

--- The file is as it was when the serving policy was loaded from it.
local function restored(self, item)
  local was_wrong = item.error or item.is_gone
  attempts.is_right(item)
  if was_wrong then tell(self, item, "back", item.path .. ": is again what is serving") end
end

--- What is set for a policy by the parameter files, in their order, and by the environment.
---@return neap.Setting[]
local function settings_of(self, item)
  return settings.for_policy(self.param_files, self.environment, item.name)
end

--- With what operators have set, which goes before it.
---@param list neap.Setting[]
---@return neap.Setting[]
function attempts.with_operators(item, list)
  local all = {}
  for i, entry in ipairs(list) do all[i] = entry end
  for _, entry in ipairs(item.set) do all[#all + 1] = entry end
  return all
end

--- Loads the policy from what was seen: policy | nil, err.  Changes nothing that serves.
function attempts.load(self, item, texts)
  item.settings = settings_of(self, item)
  local given = attempts.with_operators(item, item.settings)
  local noted, read = watched.reader(self.files, texts)
  local policy, err = self.load(item.path, given, read)
  if noted[item.path] == nil then noted[item.path] = texts[item.path] end
  item.attempted, item.candidate = noted, nil
  item.round, item.given = self.round, settings.text(given)
  return policy, err
end

--- Whether something else is set for it than when it was attempted last.
local function is_set_anew(self, item)
  if item.round == self.round then return false end
  item.round = self.round
  return settings.text(attempts.with_operators(item, settings_of(self, item))) ~= item.given
end

--- The policies that there are, or will be as soon as they are looked at: not those whose file is
--- wrong.
local function served_names(self)
  local names = {}
  for _, item in ipairs(self.items) do
    if item.policy or not item.error then names[#names + 1] = item.name end
  end
  return names
end

--- What is wrong with the guards that its fallbacks name; nil if they will be there.
function attempts.guard_fault(self, policy)
  if self.has_others then return nil end
  return policy_files.missing_guard(policy, served_names(self))
end

--- Whether the policy that the file was refused for lack of is there by now.
local function has_come(self, item)
  if not item.lacks then return false end
  for _, name in ipairs(served_names(self)) do
    if name == item.lacks then return true end
  end
  return false
end

local UNSET = {}

--- What differs between the params of two generations: { { name =, old =, new =, from = } … }.
local function changes_of(was, is)
  local old, changes, seen = {}, {}, {}
  for _, row in ipairs(was.parameters or {}) do old[row.name] = row end
  local function compare(name, before, after, from)
    if parameters.same(before, after) then return end
    changes[#changes + 1] = { name = name, old = before, new = after, from = from }
  end
  for _, row in ipairs(is.parameters or {}) do
    seen[row.name] = true
    compare(row.name, (old[row.name] or UNSET).value, row.value, row.from)
  end
  for _, row in ipairs(was.parameters or {}) do
    if not seen[row.name] then compare(row.name, row.value, nil, "not set any more") end
  end
  return changes
end

--- "flags: params 3: timeout_ms 300 -> 500, failures 5 -> 3 (admin, by alice: it is slow)"
local function changes_said(item, changes)
  local said = {}
  for i, one in ipairs(changes) do
    -- What is not declared may be nobody's business.
    local values = item.policy.declares
      and (" %s -> %s"):format(parameters.inline(one.old), parameters.inline(one.new)) or ""
    local follows = changes[i + 1] and changes[i + 1].from == one.from
    said[i] = ("%s%s%s"):format(tostring(one.name), values, follows and "" or
      (" (%s)"):format(one.from))
  end
  return ("%s: params %d: %s"):format(item.name, item.params_version, table.concat(said, ", "))
end

--- Counts and tells a change of params.
local function note_params(self, item, was)
  local changes = was and changes_of(was, item.policy) or {}
  if was and #changes == 0 then return changes end
  item.params_version, item.params_at_ms = item.params_version + 1, self.now()
  if was then tell(self, item, "params", changes_said(item, changes)) end
  return changes
end

function attempts.adopt(self, item, policy)
  local ok, err = self.adopt(policy, item.path)
  if not ok then return nil, err end
  local was = item.policy
  item.policy, item.name, item.loaded_at_ms = policy, policy.name, self.now()
  return true, note_params(self, item, was)
end

local function attempt(self, item, texts)
  local policy, err = attempts.load(self, item, texts)
  item.lacks = nil
  if policy then err, item.lacks = attempts.guard_fault(self, policy) end
  if err then return attempts.fail(self, item, err) end
  if item.policy and policy.hash == item.policy.hash then
    item.policy = policy -- the same, but for where its params are set
    return restored(self, item)
  end
  local is_first = not item.policy
  local ok, message = attempts.adopt(self, item, policy)
  if not ok then return attempts.fail(self, item, message) end
  attempts.is_right(item)
  item.reloads = item.reloads + 1
  tell(self, item, "reloaded",
    ("%s: %s, %s"):format(item.path, is_first and "loaded" or "reloaded", policy.hash))
end

--- The file itself is not there.  Answers when to look again.
local function missing(self, item, now_ms)
  item.candidate = nil
  item.missing_ms = item.missing_ms or now_ms
  if not item.policy then return nil end
  local for_ms = now_ms - item.missing_ms
  if for_ms < GONE_MS then return item.missing_ms + GONE_MS end
  if not item.is_gone then
    item.is_gone = true
    tell(self, item, "gone", item.path .. ": is gone, its policy goes on serving")
  end
  if item.is_orphaned then return nil end
  if for_ms < ORPHAN_MS then return item.missing_ms + ORPHAN_MS end
  item.is_orphaned = true
  tell(self, item, "orphaned", item.path .. ": has been gone for 10 s, its policy is orphaned")
end

--- One item, one look.  Answers when to look again, nil if that can wait.
function attempts.look_at(self, item, now_ms, is_forced)
  local texts = watched.contents(self.files, item)
  if texts[item.path] == false then return missing(self, item, now_ms) end
  item.missing_ms = nil
  local at_ms = watched.due_ms(item, texts, now_ms)
  -- Nothing new in the files, but maybe in what is set for them; or the file is there again and was
  -- wrong before it went; or somebody wants it tried again.
  local is_due = is_set_anew(self, item) or has_come(self, item) or item.is_gone and item.error
  if not at_ms and (is_due or is_forced and item.error) then at_ms = now_ms end
  if not at_ms then
    if item.is_gone then restored(self, item) end
    return nil
  end
  if not is_forced and now_ms < at_ms then return at_ms end
  attempt(self, item, texts)
end

--- What there is to know of a file, a policy's or one of parameters, before it is read.
function attempts.new(path)
  return {
    path = path, name = policy_files.name_of(path), reloads = 0, failures = 0,
    set = {}, params_version = 0,
  }
end

return attempts
