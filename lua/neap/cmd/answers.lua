--- Answers of the admin pages.

local json = require "neap.cmd.json"

local answers = {}

---@return neap.admin.answer
function answers.json(status, value)
  return { status = status, type = "application/json", body = json.encode(value) .. "\n" }
end

--- An RFC 9457 problem.
---@param title string   what sort of thing is wrong
---@param detail? string  what would be right
---@param headers? table<string, string>
---@return neap.admin.answer
function answers.problem(status, title, detail, headers)
  local answer = answers.json(status, { status = status, title = title, detail = detail })
  answer.type, answer.headers = "application/problem+json", headers
  return answer
end

return answers
