--- What a simulation came to, for people and for programs: a column for each run.

local axis = require "neap.lab.axis"
local characters = require "neap.characters"
local html = require "neap.lab.html"
local json = require "neap.cmd.json"
local svg = require "neap.lab.svg"
local words = require "neap.lab.words"

local report = {}

local max = math.max

local NOT_KNOWN = "A model: requests take no time between services, a service is a queue and some "
  .. "workers, and chance is what the scenario says it is. What it shows is how breakers, timeouts "
  .. "and retries act on one another; how much of it your services will see, only they can tell."

-- ---- Rows -------------------------------------------------------------------------------------

local FORMATS = {
  whole = words.count,
  share = function(n)
    if n > 0 and n < 0.0005 then return "under 0.1 %" end
    return ("%.1f %%"):format(n < 1 and n > 0.9994 and 99.9 or n * 100)
  end,
  ms = axis.span,
  times = function(n)
    local text = ("%.3g"):format(n)
    return text .. (text == "1" and " time" or " times")
  end,
}

--- Of a result's run: what is said, how, and where it is found.
local REQUESTS = {
  { "requests from outside", "whole", function(r) return r.count end },
  { "answered well", "share", function(r) return r.ok_share end },
  { "  before the faults", "share", function(r) return r.before.ok_share end },
  { "  during", "share", function(r) return r.during.ok_share end },
  { "  after", "share", function(r) return r.after.ok_share end },
  { "p99", "ms", function(r) return r.p99_ms end },
  { "  before the faults", "ms", function(r) return r.before.p99_ms end },
  { "  during", "ms", function(r) return r.during.p99_ms end },
  { "  after", "ms", function(r) return r.after.p99_ms end },
}

local SERVICE = {
  { "asked, for each request from outside", "times", function(s) return s.amplification end },
  { "  during the faults", "times", function(s) return s.amplification_during end },
  { "most requests in a second", "whole", function(s) return s.peak_per_s end },
  { "turned away: no worker, no room", "whole", function(s) return s.turned_away end, true },
  { "workers busy, at most", "share", function(s) return s.most_busy_share end },
  { "answers that nobody waited for", "whole", function(s) return s.for_nobody end, true },
}

local function first_fault(name)
  return function(c) return c.faults and c.faults[1] and c.faults[1][name] end
end

local CALL = {
  { "sent", "whole", function(c) return c.sent end },
  { "  in vain: failed or too late", "share", function(c) return c.wasted_share end },
  { "waited for a connection", "whole", function(c) return c.waited_for_connection end, true },
  { "retries", "whole", function(c) return c.retries end, true },
  { "refused by a breaker", "whole", function(c) return c.refused end, true },
  { "  which would have been served", "whole", function(c) return c.good_lost end, true },
  { "refused by a bulkhead", "whole", function(c) return c.refused_by_bulkhead end, true },
  { "probes", "whole", function(c) return c.probes end, true },
  { "  most in a second", "whole", function(c) return c.probes_peak_per_s end, true },
  { "  most in a tenth of one", "whole", function(c) return c.probes_peak_per_tenth end, true },
  { "breakers that opened, first fault", "whole", first_fault "opened" },
  { "  after: half of them", "ms", first_fault "open_p50_ms" },
  { "  after: 99 %", "ms", first_fault "open_p99_ms" },
  { "  closed, from its end: half", "ms", first_fault "close_p50_ms" },
  { "  closed, from its end: 99 %", "ms", first_fault "close_p99_ms" },
  { "opened, times", "whole", function(c) return c.breakers > 0 and c.opens or nil end },
  { "  with no fault for a minute", "whole", function(c) return c.opens_without_fault end, true },
  { "  soon after closing: flapping", "whole", function(c) return c.flaps end, true },
}

--- A row for each that any run has something to say of; those with the last mark, that is not 0.
local function add_rows(rows, specs, parts)
  for _, spec in ipairs(specs) do
    local label, format, get, not_zero = table.unpack(spec)
    local cells, says = {}, false
    for i, part in ipairs(parts) do
      local value = part and get(part)
      cells[i] = value and FORMATS[format](value) or "–"
      says = says or value ~= nil and not (not_zero and value == 0)
    end
    if says then rows[#rows + 1] = { label, table.unpack(cells) } end
  end
end

--- The same part of every run.
local function each(runs, get)
  local parts = {}
  for i, one in ipairs(runs) do parts[i] = get(one) or false end
  return parts
end

--- Groups of rows: { title =, rows = { { label, cell of run 1, … } } }.
---@param result neap.lab.sim.Result
---@return { title: string, rows: string[][] }[]
function report.groups(result)
  local runs, groups = result.runs, {}
  local function add(title, specs, get)
    local rows = {}
    add_rows(rows, specs, each(runs, get))
    groups[#groups + 1] = { title = title, rows = rows }
  end
  add("all of it", REQUESTS, function(one) return one.requests end)
  for i, service in ipairs(runs[1].services) do
    add(service.replicas > 1 and ("%s, %d replicas"):format(service.name, service.replicas)
      or service.name, SERVICE, function(one) return one.services[i] end)
  end
  for i, call in ipairs(runs[1].calls) do
    add(("%s calls %s"):format(call.from, call.to), CALL, function(one) return one.calls[i] end)
  end
  return groups
end

local function run_names(result)
  local names = {}
  for i, one in ipairs(result.runs) do names[i] = characters.of(one.name or "") end
  return names
end

local function params_text(one)
  local parts = {}
  for name, value in pairs(one.params) do
    if type(value) ~= "table" then parts[#parts + 1] = ("%s = %s"):format(name, tostring(value)) end
  end
  table.sort(parts)
  return table.concat(parts, ", ") .. (parts[1] and "; " or "")
end

local function heading(result)
  return ("%s, seed %d"):format(axis.span(result.duration_ms), result.seed)
end

-- ---- Text -------------------------------------------------------------------------------------

local LABEL = 40

local function right(text, width) return (" "):rep(width - utf8.len(text)) .. text end

---@param result neap.lab.sim.Result
---@return string
function report.text(result)
  local names, widths = run_names(result), {}
  local title = result.title ~= result.name and ": " .. result.title or ""
  local parts = { ("%s%s (%s)\n"):format(result.name, characters.printable(title),
    heading(result)) }
  local function add(text) parts[#parts + 1] = text end
  for i, name in ipairs(names) do names[i] = characters.printable(name) end
  for i, name in ipairs(names) do widths[i] = max(14, utf8.len(name) + 2) end
  local head = { (" "):rep(LABEL) }
  for i, name in ipairs(names) do head[i + 1] = right(name, widths[i]) end
  if result.runs[1].name then add("\n" .. table.concat(head) .. "\n") end
  for _, group in ipairs(report.groups(result)) do
    add(("\n%s\n"):format(group.title))
    for _, row in ipairs(group.rows) do
      local cells = { ("  %-" .. LABEL - 2 .. "s"):format(row[1]) }
      for i = 2, #row do cells[i] = right(row[i], widths[i - 1]) end
      add(table.concat(cells) .. "\n")
    end
  end
  if result.lesson then
    add("\n" .. characters.printable(words.wrapped(result.lesson, 100)):gsub("\\x0a", "\n") .. "\n")
  end
  return table.concat(parts)
end

-- ---- JSON -------------------------------------------------------------------------------------

---@param result neap.lab.sim.Result
---@return string
function report.json(result)
  local copy, runs = {}, {}
  for key, value in pairs(result) do copy[key] = value end
  for i, one in ipairs(result.runs) do
    runs[i] = {}
    for key, value in pairs(one) do runs[i][key] = key ~= "plot" and value or nil end
    runs[i].services, runs[i].calls = json.list(one.services), json.list(one.calls)
  end
  copy.runs = json.list(runs)
  return json.encode(copy) .. "\n"
end

-- ---- HTML -------------------------------------------------------------------------------------

local EM_SPACE = "\u{2003}"

--- A series of slices, as so many a second or as they are.
local function series(plot, list, name, scale, none)
  local x, y, count = {}, {}, math.ceil(plot.duration_ms / plot.slice_ms)
  local last = none
  for i = 1, count do
    local value = list[i]
    if none == "last" then
      value = value or last ~= "last" and last or 0
      last = value
    end
    x[i] = (i - 1) * plot.slice_ms
    y[i] = (value or none == "gap" and false or 0)
    if y[i] then y[i] = y[i] * scale end
  end
  x[count + 1], y[count + 1] = plot.duration_ms, y[count]
  return { name = name, draw = "step", x = x, y = y }
end

local function panel(result, label, y, get)
  local all, has = {}, false
  for i, one in ipairs(result.runs) do
    local list, scale, none = get(one.plot)
    if list then
      has = has or next(list) ~= nil
      all[#all + 1] = series(one.plot, list, one.name or ("run " .. i), scale, none)
    end
  end
  return has and { kind = "lines", label = label, height = 110, y = y, series = all } or nil
end

local function per_s(plot) return 1000 / plot.slice_ms end

local function requests_panels(result, add)
  add(panel(result, "answered well, per second", {}, function(plot)
    return plot.requests.ok, per_s(plot)
  end))
  add(panel(result, "answered badly, per second", {}, function(plot)
    return plot.requests.failed, per_s(plot)
  end))
  add(panel(result, "p99 of those who ask", { kind = "log", unit = "ms" }, function(plot)
    return plot.p99_ms, 1, "gap"
  end))
end

local function service_panels(result, add)
  for i, service in ipairs(result.runs[1].plot.services) do
    add(panel(result, service.name .. ": requests per second", {}, function(plot)
      return plot.services[i].slices.received, per_s(plot)
    end))
    if service.workers then
      add(panel(result, service.name .. ": workers busy", { unit = "share", to = 1 },
        function(plot)
          return plot.services[i].slices.busy, 1 / plot.services[i].workers
        end))
    end
  end
end

local function call_panels(result, add)
  for i, call in ipairs(result.runs[1].plot.calls) do
    local function has_breakers(plot) return plot.calls[i].breakers > 0 end
    add(panel(result, call.name .. ": breakers that are open", { unit = "share", to = 1 },
      function(plot)
        if not has_breakers(plot) then return nil end
        local open = {}
        for at, n in pairs(plot.calls[i].slices.closed) do open[at] = -n end
        return open, 1 / plot.calls[i].breakers, "last"
      end))
    add(panel(result, call.name .. ": probes per second", {}, function(plot)
      if not has_breakers(plot) then return nil end
      return plot.calls[i].slices.probes, per_s(plot)
    end))
  end
end

local function shades(plot)
  local list = {}
  for i, fault in ipairs(plot.faults) do
    if i <= 50 then
      list[i] = { from = fault.from_ms, to = fault.to_ms,
        text = ("%s: %s"):format(fault.of, fault.kind) }
    end
  end
  return list
end

--- One picture: what is asked, what answers, what the breakers do, with a line for each run.
local function figure(result)
  local panels, plot = {}, result.runs[1].plot
  local function add(one) panels[#panels + 1] = one end
  requests_panels(result, add)
  service_panels(result, add)
  call_panels(result, add)
  return svg.figure {
    title = "Over time",
    about = "What comes from outside and how it is answered; what each service is asked; what the "
      .. "breakers do. Faults are shaded.",
    x = { kind = "elapsed", from = 0, to = plot.duration_ms }, shades = shades(plot),
    panels = panels,
  }
end

---@param result neap.lab.sim.Result
---@param given? { file: string, source: string } the scenario, to be shown
---@return string
function report.html(result, given)
  local columns, body = { "" }, {}
  for i, name in ipairs(run_names(result)) do
    columns[i + 1] = name ~= "" and name or "what it came to"
  end
  if result.lesson then body[1] = html.paragraph(result.lesson) end
  body[#body + 1] = figure(result)
  body[#body + 1] = html.heading "In numbers"
  for _, group in ipairs(report.groups(result)) do
    for _, row in ipairs(group.rows) do row[1] = row[1]:gsub("^  ", EM_SPACE) end
    body[#body + 1] = html.table { caption = group.title, columns = columns, rows = group.rows }
  end
  local runs = {}
  for i, one in ipairs(result.runs) do
    runs[i] = ("%s: %s%s"):format(one.name or "the run", params_text(one),
      words.counted(one.events, "event"))
  end
  body[#body + 1] = html.heading "How it was simulated"
  body[#body + 1] = html.list(runs)
  body[#body + 1] = html.note(NOT_KNOWN)
  if given then body[#body + 1] = html.details(given.file, html.source(given.source)) end
  return html.page {
    title = result.title, lead = ("%s, %s"):format(result.name, heading(result)), body = body,
  }
end

return report
