--- A file that a command leaves.

--- Nil and one line with the path if it cannot be written, all of it.
---@param path string
---@param text string
---@return true|nil
---@return string|nil message
return function(path, text)
  local file, message = io.open(path, "w")
  if not file then return nil, message end
  local ok, fault = file:write(text)
  local closed, late = file:close()
  if ok and closed then return true end
  return nil, ("%s: %s"):format(path, tostring(fault or late))
end
