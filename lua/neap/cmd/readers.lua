--- Readers of what people write in options and configuration files: each answers the value, or nil
--- and what would be right.

local address = require "neap.cmd.address"
local suggest = require "neap.suggest"

local readers = {}

function readers.text(value)
  if type(value) == "string" and value:find("%S") then return value end
  return nil, "must be a text"
end

function readers.one_of(...)
  local names = { ... }
  return function(value)
    for _, name in ipairs(names) do
      if name == value then return value end
    end
    return nil, "must be " .. table.concat(names, " or ") .. suggest.hint(value, names)
  end
end

--- A whole number, given as one or as text.
function readers.whole(min, max, unit)
  return function(value)
    local number = tonumber(value)
    if number and number % 1 == 0 and number >= min and number <= max then return number end
    return nil, ("must be a whole number%s, %d to %d"):format(unit, min, max)
  end
end

function readers.switch(value)
  if type(value) == "boolean" then return value end
  return nil, "must be true or false"
end

function readers.listen(value)
  if type(value) ~= "string" then return nil, "must be a text such as \"127.0.0.1:8080\"" end
  return address.listen(value)
end

function readers.admin(value)
  if value == "off" or value == false then return false end
  local read, expected = readers.listen(value)
  return read, expected and expected .. "; or off"
end

function readers.upstream(value)
  if type(value) ~= "string" then return nil, "must be a text such as \"http://127.0.0.1:8016\"" end
  return address.upstream(value)
end

function readers.webhook(value)
  local expected = "must be a URL such as \"https://hooks.example.com/neap\""
  if type(value) ~= "string" then return nil, expected end
  return address.webhook(value)
end

function readers.host(value)
  local is_host = type(value) == "string" and value:match("^[%w.:%[%]_-]+$")
  if is_host and not value:match("%]?:%d+$") then return value:lower() end
  return nil, "must be a host name without a port, e.g. api.example.com"
end

function readers.prefix(value)
  if type(value) == "string" and value:match("^/[^%s?#]*$") then return value end
  return nil, "must be a path that begins with /, without ? and #"
end

function readers.name(value)
  if type(value) == "string" and value:match("^[%w_.:@/-]+$") and #value <= 60 then return value end
  return nil, "must be 1 to 60 letters, digits or any of _ . : @ / -"
end

local function texts(expected)
  return function(value)
    if type(value) == "string" then value = { value } end
    local is_list = type(value) == "table" and #value > 0
    for _, one in ipairs(is_list and value or {}) do is_list = is_list and readers.text(one) end
    if is_list then return value end
    return nil, expected
  end
end

readers.texts = texts "must be a list of policy files and directories"
readers.files = texts "must be a file, or a list of files"

readers.milliseconds = readers.whole(1, 3600000, " of ms")
readers.patience = readers.whole(0, 3600000, " of ms")
readers.count = readers.whole(1, 4194304, "")
readers.file_bytes = readers.whole(4096, 2 ^ 50, " of bytes")
readers.files_kept = readers.whole(1, 1000, "")
readers.log_format = readers.one_of("text", "json")

return readers
