--- The page: one document with everything in it.  It asks for nothing but what is below its own
--- address, and nothing in it is anybody's secret: what it shows it has to ask for, with the token.

local integrity = require "neap.integrity"

local page = {}

local STYLES = { "style", "tiles", "dialogs" }
local SCRIPTS = { "live", "draw", "tiles", "detail", "act", "main" }

--- The text of a file of this directory: inside the program, or, in the source tree, beside this.
local function text_of(name)
  local ok, text = pcall(require, "neap.page." .. name)
  if ok then return text end
  for template in package.path:gmatch "[^;]+" do
    local path = template:gsub("%.lua$", ""):gsub("%?", "neap/page/" .. name)
    local file = io.open(path, "rb")
    if file then
      text = file:read("*a")
      file:close()
      return text
    end
  end
  error(("the page is not whole: there is no neap/page/%s beside its Lua"):format(name))
end

local function together(names, ending)
  local texts = {}
  for i, name in ipairs(names) do texts[i] = text_of(name .. ending) end
  return table.concat(texts)
end

local POLICY = "default-src 'none'; script-src %s; style-src %s; img-src data:; "
  .. "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
  .. "require-trusted-types-for 'script'"

local function make()
  local script = ('"use strict";\n(() => {\n%s})();\n'):format(together(SCRIPTS, ".js"))
  local parts = { style = together(STYLES, ".css"), script = script }
  parts.version = integrity.source(script)
  return {
    version = parts.version, body = text_of("index.html"):gsub("{{(%l+)}}", parts),
    policy = POLICY:format(parts.version, integrity.source(parts.style)),
  }
end

--- Whether a browser asks for it: others are answered with a list of what there is.
---@param request neap.admin.request
---@return boolean
function page.is_wanted(request)
  return (request.method == "GET" or request.method == "HEAD")
    and request.target:match "^([^?#]*)" == "/"
    and (request.headers.accept or ""):find("text/html", 1, true) ~= nil
end

local made

local function document()
  made = made or make()
  return made
end

--- Which page goes with what is told: one that was loaded from an earlier neap may be another.
---@return string
function page.version() return document().version end

---@return neap.admin.answer
function page.answer()
  local it = document()
  return {
    status = 200, type = "text/html; charset=utf-8", body = it.body,
    headers = { ["Content-Security-Policy"] = it.policy, ["Referrer-Policy"] = "no-referrer" },
  }
end

return page
