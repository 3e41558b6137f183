--- Tests of policies: a clock that the spec moves, a dependency that does what the spec says.
--
--   local t = require "neap.testing"
--
--   t.describe("flag_provider", function()
--     local flags
--     t.before_each(function() flags = t.policy "flag_provider.lua" end)
--
--     t.it("opens after five 503s within two seconds, and asks again after five", function()
--       flags:calls(5, 503, { every_ms = 400 })
--       flags:is("open", "failures"):stays_open_for(5000)
--       flags:cool_down():call(200):is_a_probe()
--     end)
--   end)
--
-- `neap test` runs such a file, and so does busted: describe and it are busted's there.  Without
-- either, what is expected and is not so is an error of the script.

local bench = require "neap.testing.bench"
local scratch = require "neap.testing.scratch"
local suite = require "neap.testing.suite"

local testing = {}

--- Puts a policy on the bench.
---@param path string of its file: beside the spec, else from the working directory
---@param options? neap.testing.Options
---@return neap.testing.Bench
function testing.policy(path, options)
  return bench.of_spec(path, options)
end

local busted = package.loaded.busted
local runner = busted and busted.describe and busted or suite

--- What is tested, and a function with the tests in it.
---@type fun(title: string, f: function)
testing.describe = runner.describe

--- One test: a sentence about what a policy does, and a function that finds out whether it is so.
---@type fun(title: string, f: function)
testing.it = runner.it

--- Something to be done before each test of this describe, and of those in it.
---@type fun(f: function)
testing.before_each = runner.before_each

--- Something to be done after each of them, whatever came of it.
---@type fun(f: function)
testing.after_each = runner.after_each

--- A test that is not written yet.
---@type fun(title: string)
testing.pending = runner.pending

if busted and busted.subscribe then
  busted.subscribe({ "test", "end" }, function()
    scratch.clear()
    return nil, true
  end)
end

return testing
