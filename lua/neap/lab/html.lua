--- Reports: one HTML file that asks nobody else for anything, in light, dark and print.
--
--   local html = require "neap.lab.html"
--   local text = html.page {
--     title = "Replay of access.log",
--     lead  = "2 breakers opened 3 times in 7 days.",
--     body  = {                                          -- pieces, in order; each is HTML
--       html.heading "What happened",
--       html.paragraph "Names may be hostile: <script> is text here.",
--       html.table { caption = "…", columns = { "breaker", "opened" }, rows = { { "a", 3 } } },
--       svg.figure { … },                                -- neap.lab.svg
--     },
--   }
--
-- What these functions are given is text and is escaped; what they answer is HTML.  A text that is
-- put into body by itself must be HTML already: html.escape makes it that.  The page's policy
-- (Content-Security-Policy) lets nothing run or load but its own style and script, by their hash.

local characters = require "neap.characters"
local integrity = require "neap.integrity"
local style = require "neap.lab.style"
local zoom = require "neap.lab.zoom"

local html = {}

local ENTITIES = {
  ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;",
}

--- A text as HTML and SVG have it, in an attribute too: valid UTF-8, no control characters, and
--- nothing that turns the order of what follows it.
---@param text any
---@return string
function html.escape(text)
  text = characters.of(tostring(text)):gsub("[%c\127]", function(c)
    return (c == "\n" or c == "\t") and c or characters.REPLACEMENT
  end)
  text = text:gsub("\226\128[\170-\174]", characters.REPLACEMENT)
    :gsub("\226\129[\166-\169]", characters.REPLACEMENT)
    :gsub("\194[\128-\159]", characters.REPLACEMENT)
    :gsub("\239\191[\190\191]", characters.REPLACEMENT)
  return (text:gsub("[&<>\"']", ENTITIES))
end

local escape = html.escape

---@param text string
---@return string
function html.heading(text) return ("<h2>%s</h2>\n"):format(escape(text)) end

---@param text string an empty line begins another one
---@return string
function html.paragraph(text)
  return "<p>" .. escape(text):gsub("\n%s*\n", "</p>\n<p>") .. "</p>\n"
end

--- What must not be overlooked: what is not known, what was left out.
---@param text string
---@return string
function html.note(text) return ('<p class="note">%s</p>\n'):format(escape(text)) end

---@param items string[]
---@return string
function html.list(items)
  local parts = {}
  for i, item in ipairs(items) do parts[i] = ("<li>%s</li>\n"):format(escape(item)) end
  return "<ul>\n" .. table.concat(parts) .. "</ul>\n"
end

--- A text as it is, line by line: a policy, a command.
---@param text string
---@return string
function html.source(text) return ("<pre>%s</pre>\n"):format(escape(text)) end

---@class (exact) neap.lab.html.Table
---@field caption? string
---@field columns string[] their heads
---@field rows any[][] texts and numbers; a row's `class`, if it has one, is "chosen": it stands out
---@field left? table<integer, true> columns that are at the left though they have figures in them

local function is_figure(text)
  return type(text) == "number" or tostring(text):find("^[−%-]?%d") ~= nil
end

--- A table.  A column whose cells all begin with a figure is at the right.
---@param given neap.lab.html.Table
---@return string
function html.table(given)
  local numeric, parts = {}, { '<div class="wide"><table>\n' }
  for i = 1, #given.columns do
    numeric[i] = #given.rows > 0 and not (given.left and given.left[i])
    for _, row in ipairs(given.rows) do
      local cell = row[i]
      if cell ~= nil and cell ~= "–" and cell ~= "" and not is_figure(cell) then
        numeric[i] = false
      end
    end
  end
  local function add(text, ...) parts[#parts + 1] = text:format(...) end
  if given.caption then add("<caption>%s</caption>\n", escape(given.caption)) end
  add "<thead><tr>"
  for i, column in ipairs(given.columns) do
    add('<th scope="col"%s>%s</th>', numeric[i] and ' class="n"' or "", escape(column))
  end
  add "</tr></thead>\n<tbody>\n"
  for _, row in ipairs(given.rows) do
    add("<tr%s>", row.class and ('class="%s"'):format(escape(row.class)):gsub("^", " ") or "")
    for i = 1, #given.columns do
      local cell = row[i]
      add("<td%s>%s</td>", numeric[i] and ' class="n"' or "", cell == nil and "" or escape(cell))
    end
    add "</tr>\n"
  end
  add "</tbody></table></div>\n"
  return table.concat(parts)
end

--- Something to be opened by who wants to see it.
---@param summary string
---@param body string HTML
---@return string
function html.details(summary, body)
  return ("<details><summary>%s</summary>\n%s</details>\n"):format(escape(summary), body)
end

local PAGE = [[
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<style>%s</style>
</head>
<body>
<main>
<h1>%s</h1>
%s%s</main>
<script>%s</script>
</body>
</html>
]]

---@class (exact) neap.lab.html.Page
---@field title string
---@field lead? string what the reader should know if he reads one sentence
---@field body string[] HTML, as the other functions of this module and neap.lab.svg answer it

--- The whole file.
---@param given neap.lab.html.Page
---@return string
function html.page(given)
  local lead = given.lead and ('<p class="lead">%s</p>\n'):format(escape(given.lead)) or ""
  local title = escape(given.title)
  return PAGE:format(integrity.source(style), integrity.source(zoom), title, style, title, lead,
    table.concat(given.body), zoom)
end

return html
