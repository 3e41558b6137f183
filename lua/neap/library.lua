--- What a policy has made of the classify library that it was given.
--
-- If that is only other values in its tables, the shipped classifiers are still code of ours, and
-- run without a box.  All is read raw: this is in no box, and a metatable might do anything.

local classify = require "neap.classify"

local library = {}

local DATA = { string = true, boolean = true, number = true }

--- The fields of a classifier and of the tables in it, copied; nil if there is more to them.
local function data_of(fields, is_inner)
  local copy = {}
  for key, value in next, fields do
    if type(value) == "table" and not is_inner and getmetatable(value) == nil then
      value = data_of(value, true)
      if not value then return nil end
    elseif not DATA[type(value)] then
      return nil
    end
    copy[key] = value
  end
  return copy
end

--- A library with the tables of `of_policy`, which from then on are nobody else's; nil if there is
--- more to it than other values in its tables.
local function sealed_library(of_policy)
  local copy = classify.new()
  for _, name in ipairs(classify.names) do
    local fields = rawget(of_policy, name)
    if classify.original_name(fields) ~= name then return nil end
    fields = data_of(fields)
    if not fields then return nil end
    for key in next, copy[name] do copy[name][key] = nil end
    for key, value in next, fields do copy[name][key] = value end
  end
  return copy
end

---@param fields table a classifier's
---@return table|nil
function library.data_of(fields) return data_of(fields) end

--- Under which name a library has a classifier, or nil.
---@param of_policy table as of classify.new()
---@param value any
---@return string|nil
function library.name_of(of_policy, value)
  for _, name in ipairs(classify.names) do
    if rawequal(rawget(of_policy, name), value) then return name end
  end
end

--- The same classifier with tables that nobody can change any more; nil if `value` is none of
--- `of_policy`'s, or its tables hold more than data.
---@param of_policy table as of classify.new()
---@param value any
---@return neap.Classifier|nil
function library.sealed(of_policy, value)
  if not classify.is_classifier(value) then return nil end
  local copy = sealed_library(of_policy)
  if not copy then return nil end
  local name = library.name_of(of_policy, value)
  if name then return copy[name] end
  local lists = data_of(value)
  return lists and lists.record and lists.ignore and copy.errors(lists) or nil
end

local function is_same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in next, a do
    if not is_same(value, rawget(b, key)) then return false end
  end
  for key in next, b do
    if rawget(a, key) == nil then return false end
  end
  return true
end

--- Whether a policy has changed any of the tables that classify.default goes by.
---@param of_policy table as of classify.new()
---@return boolean
function library.is_changed(of_policy)
  for _, name in ipairs(classify.names) do
    if not is_same(rawget(of_policy, name), classify[name]) then return true end
  end
  return false
end

return library
