--- What ops/ says of itself: each alert has a section in the runbook and a test; the dashboard is
--- whole, and all it asks for is there.
---
---   lua5.4 alerts.lua check              the files alone
---   lua5.4 alerts.lua short FILE         the rules with each minute as 250 ms, written to FILE
---   lua5.4 alerts.lua queries            the dashboard's queries, one a line
---   lua5.4 alerts.lua data QUERY         reads Prometheus's answer: is there something in it?
---   lua5.4 alerts.lua firing             reads Prometheus's answer: which alerts fire

local json = require "cjson"

local MINUTE_MS = 250

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  return text
end

local function dashboard() return json.decode(read "ops/dashboard.json") end

local command = {}

function command.check()
  local names, runbook, tests = {}, read "docs/runbook.md", read "ops/alerts_test.yml"
  for name in read("ops/alerts.yml"):gmatch "\n      %- alert: (%w+)" do
    names[#names + 1] = name
  end
  assert(#names >= 10, "few alerts")
  local links = read "ops/alerts.yml"
  for _, name in ipairs(names) do
    assert(runbook:find("\n## " .. name .. "\n\n*", 1, true), "no section about " .. name)
    assert(links:find("docs/runbook.md#" .. name:lower() .. "\n", 1, true), "no link of " .. name)
    assert(tests:find('alertname="' .. name .. '"', 1, true), "no test of " .. name)
  end
  for name in runbook:gmatch "\n## (%w+)" do
    assert(table.concat(names, " "):find(name, 1, true), "no alert " .. name)
  end
  assert(select(2, links:gsub("severity: page", "")) + select(2, links:gsub("severity: ticket", ""))
    == #names, "each has a severity")
end

--- Panels do not lie over each other, and each asks for something.
local function check_panels(panels)
  local taken, ids = {}, {}
  for _, panel in ipairs(panels) do
    local at = panel.gridPos
    assert(not ids[panel.id] and at.x + at.w <= 24, panel.title)
    ids[panel.id] = true
    assert(panel.title ~= "" and panel.description ~= "" and #panel.targets > 0, panel.title)
    for x = at.x, at.x + at.w - 1 do
      for y = at.y, at.y + at.h - 1 do
        local place = x .. "," .. y
        assert(not taken[place], panel.title .. " lies over " .. tostring(taken[place]))
        taken[place] = panel.title
      end
    end
    for _, target in ipairs(panel.targets) do
      assert(target.datasource.uid == "${datasource}", panel.title)
    end
  end
end

function command.queries()
  local board = dashboard()
  assert(board.schemaVersion >= 36 and board.uid == "neap" and board.title, "no dashboard")
  check_panels(board.panels)
  local function ask(query)
    query = query:gsub("%$__rate_interval", "60s"):gsub("%$%a+", ".*")
    assert(not query:find("[$\n]"), query)
    print(query)
  end
  for _, panel in ipairs(board.panels) do
    for _, target in ipairs(panel.targets) do ask(target.expr) end
  end
  for _, one in ipairs(board.annotations.list) do ask(one.expr) end
  for _, variable in ipairs(board.templating.list) do
    if variable.type == "query" then
      local of, label = variable.definition:match "^label_values%((.*), (%w+)%)$"
      ask(("count by (%s) (%s)"):format(label, of))
    end
  end
end

function command.short(path)
  local text = read("ops/alerts.yml"):gsub("(%d+)m([%]\n])", function(minutes, after)
    return ("%dms%s"):format(minutes * MINUTE_MS, after)
  end)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

function command.data(query)
  local answer = json.decode(io.read "a")
  assert(answer.status == "success", ("%s: %s"):format(query, tostring(answer.error)))
  assert(#answer.data.result > 0, query .. ": no data")
end

--- "NAME POLICY" of each, sorted.
function command.firing()
  local answer, list = json.decode(io.read "a"), {}
  for _, alert in ipairs(answer.data.alerts) do
    if alert.state == "firing" then
      list[#list + 1] = alert.labels.alertname .. " " .. tostring(alert.labels.policy)
    end
  end
  table.sort(list)
  print(table.concat(list, ", "))
end

command[arg[1]](arg[2])
