--- Whether what neap tune recommends holds on calls that it has not seen, and how that is told.

local holdout = require "neap.lab.holdout"
local json = require "neap.cmd.json"
local marks = require "neap.lab.marks"
local report = require "neap.lab.tune_report"
local tune = require "neap.lab.tune"

local VARIED = { { key = "trip.failure_rate", values = { 0.1, 0.2, 0.3 } } }

local NAMES = { "opened", "lost", "cut_good", "saved", "saved_ms", "cut_ms", "refused", "open_ms",
  "refused_unknown" }

--- Counts of a candidate: { lost, saved, opened }, a second of waiting for each that was spared.
local function counts(of, log)
  local made = { lost = of[1], saved = of[2], saved_ms = of[2] * 1000, opened = of[3],
    refused = of[1] + of[2], calls = log.calls, failure = log.failure }
  for _, name in ipairs(NAMES) do made[name] = made[name] or 0 end
  return made
end

--- The rows of candidates: what each came to in the first part and in all.
local function rows(list, first_log)
  local made = {}
  for i, one in ipairs(list) do
    local candidate = { values = { ["trip.failure_rate"] = i / 10 }, is_now = i == 1 }
    made[i] = tune.row(candidate, counts(one.all, { calls = 30000, failure = 900 }))
    made[i].first = counts(one.first, first_log or { calls = 20000, failure = 600 })
  end
  return made
end

local UNTIL_MS = 1764549200000

local function checked(list, first_log)
  local made = rows(list, first_log)
  local verdict = tune.judge(made, VARIED)
  local result = {
    policy = "p", path = "p.lua", varied = VARIED, rows = made, verdict = verdict,
    left_out = { count = 0 }, checked = holdout.check(made, VARIED, verdict.chosen, UNTIL_MS),
    log = { calls = 30000, from_ms = UNTIL_MS - 2000000, to_ms = UNTIL_MS + 1000000, damaged = 0 },
  }
  return result, report.text(result):gsub("%s+", " ")
end

local function says(text, said)
  assert.is_not_nil(text:find(said, 1, true), said .. " is not in " .. text)
end

local HOLDS = {
  { first = { 100, 100, 5 }, all = { 190, 150, 9 } },
  { first = { 10, 90, 2 }, all = { 11, 130, 3 } },
  { first = { 0, 1, 1 }, all = { 0, 2, 2 } },
}

describe("the check", function()
  it("tells what is chosen by the first part, and what it does in the rest", function()
    local result, text = checked(HOLDS)
    says(text, "Recommended: trip.failure_rate=0.2.")
    says(text, "Checked: chosen by the calls until 2025-12-01 00:33:20 alone, it is the same. In "
      .. "the rest, which it has not seen: opened 1 time, 41 calls refused, 1 good call lost, 40 "
      .. "failures spared. The policy as it is: opened 4 times, 140 calls refused, 90 good calls "
      .. "lost, 50 failures spared.")
    local told = assert(json.decode(report.json(result))).checked
    assert.same({ until_ms = UNTIL_MS, has_outage = true, is_recommended = true, against = "less",
      values = { ["trip.failure_rate"] = 0.2 },
      rest = { opened = 1, refused = 41, good_calls_lost = 1, failures_spared = 40,
        waiting_spared_ms = 40000 },
      rest_as_it_is = { opened = 4, refused = 140, good_calls_lost = 90, failures_spared = 50,
        waiting_spared_ms = 50000 } }, told)
    says(report.html(result), "Checked: chosen by the calls until")
  end)

  it("tells of the one that the first part speaks for, where it is another", function()
    local result, text = checked {
      { first = { 100, 100, 5 }, all = { 200, 200, 9 } },
      { first = { 90, 80, 5 }, all = { 100, 190, 9 } },
      { first = { 5, 90, 2 }, all = { 190, 195, 8 } },
    }
    says(text, "Recommended: trip.failure_rate=0.2.")
    says(text, "alone, it is trip.failure_rate=0.3. In the rest, which it has not seen: opened 6 "
      .. "times, 290 calls refused, 185 good calls lost, 105 failures spared. The policy as it is: "
      .. "opened 4 times,")
    assert.is_false(assert(json.decode(report.json(result))).checked.is_recommended)
  end)

  it("takes the recommended one for the same where the first part cannot tell it apart", function()
    local _, text = checked {
      { first = { 100, 100, 5 }, all = { 190, 150, 9 } },
      { first = { 10, 90, 2 }, all = { 60, 130, 3 } },
      { first = { 10, 90, 2 }, all = { 11, 130, 3 } },
    }
    says(text, "Recommended: trip.failure_rate=0.3.")
    says(text, "alone, it is the same. In the rest, which it has not seen: opened 1 time, 41 calls")
  end)

  for against, case in pairs {
    -- good calls lost and failures spared in the rest, of the policy as it is and of the other
    better = { 20, 30, 20, 30, "It holds: it costs no more there, and spares no less." },
    worse = { 20, 30, 21, 30, "It does not hold: it costs no less there, and spares no more." },
    less = { 20, 30, 19, 29, "There it costs less and spares less." },
    more = { 20, 30, 21, 31, "There it costs more and spares more." },
  } do
    it(("says what it is there against the policy as it is: %s"):format(against), function()
      local result, text = checked {
        { first = { 100, 100, 5 }, all = { 100 + case[1], 100 + case[2], 9 } },
        { first = { 10, 100, 2 }, all = { 10 + case[3], 100 + case[4], 3 } },
      }
      assert.equal(against, result.checked.against)
      says(text, case[5])
    end)
  end

  it("says once what the policy as it is does, where the first part speaks for that", function()
    local _, text = checked {
      { first = { 0, 100, 2 }, all = { 90, 150, 9 } },
      { first = { 0, 70, 2 }, all = { 1, 140, 3 } },
    }
    says(text, "alone, it is the policy as it is. In the rest, which it has not seen: opened 7")
    assert.is_nil(text:find("The policy as it is:", 1, true))
  end)

  it("proves nothing where no version opens in the rest", function()
    local result, text = checked {
      { first = { 100, 100, 5 }, all = { 100, 100, 5 } },
      { first = { 10, 90, 2 }, all = { 10, 90, 2 } },
    }
    says(text, "it is the same. No version opens in the rest: it has no outage, and proves "
      .. "nothing.")
    assert.is_nil(text:find("In the rest, which", 1, true))
    assert.is_false(result.checked.has_outage)
  end)

  it("is none where the first part is too little to choose by", function()
    local result, text = checked(HOLDS, { calls = 20000, failure = 29 })
    says(text, "Not checked on calls that it has not seen: of the first two thirds of its time, "
      .. "the log has 29 failures; at least 30 are needed")
    says(report.json(result), '"lacks": "the log has 29 failures')
  end)

  it("is none of what is not recommended, and of a log that is too short", function()
    local made = rows(HOLDS)
    assert.is_nil(holdout.check(made, VARIED, nil, UNTIL_MS))
    assert.is_nil(holdout.check(made, VARIED, made[2], nil))
    local verdict = tune.judge(made, VARIED)
    says(report.text { policy = "p", varied = VARIED, rows = made, verdict = verdict,
      left_out = { count = 0 }, log = { calls = 1, from_ms = 0, to_ms = 1, damaged = 0 } },
      "Not checked on calls that it has not seen: the log is too short.")
  end)
end)

describe("a log is parted", function()
  local function part(to_ms)
    local list = {}
    for i = 1, to_ms / 10000 do
      list[i] = { to_ms = i * 10000, counts = { { calls = i, failure = 2 * i, cut_good = 3 * i,
        cut_ms = 4 * i, lost = 5 * i, saved = 6 * i } } }
    end
    list[#list] = nil -- nobody looks when it is over
    local source = { from_ms = 0, to_ms = to_ms }
    return holdout.part { marks = list, behind_ms = 120000, source = source }
  end

  it("after two thirds of its time, what breakers did as of when their clock was there", function()
    local until_ms, first = part(900000)
    assert.equal(600000, until_ms)
    assert.same({ 60, 120, 180, 240, 360, 432 }, { first(1, "calls"), first(1, "failure"),
      first(1, "cut_good"), first(1, "cut_ms"), first(1, "lost"), first(1, "saved") })
  end)

  it("unless their clock never gets there before it is over", function()
    assert.is_not_nil((part(420000)))
    assert.is_nil((part(360000)))
  end)
end)

describe("marks", function()
  it("are some hundred over all of a log, the same for all who read it", function()
    local calls = 0
    local native = {
      stats = function() return { to_ms = calls } end,
      counts = function(_, lane) return { calls = calls * lane } end,
    }
    local kept = marks.new(native, 2)
    while calls < 1000000 do
      calls = calls + kept.every
      kept:look()
      assert.is_true(#kept.list < 256)
    end
    local list = kept.list
    assert.is_true(#list >= 120)
    for i, mark in ipairs(list) do
      assert.equal(i * list[1].to_ms, mark.to_ms)
      assert.same({ mark.to_ms, mark.to_ms * 2 }, { mark.counts[1].calls, mark.counts[2].calls })
    end
  end)
end)
