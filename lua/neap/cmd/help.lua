--- What `neap --help` and `neap COMMAND --help` say.

local help = {}

help.neap = [[
neap: a circuit breaker in front of what your program calls

  neap serve --upstream URL --policy FILE    a sidecar: HTTP proxy with breakers and fallbacks
  neap serve CONFIG.lua                      the same, with several routes
  neap new NAME                              writes a policy, and its tests
  neap check PATH...                         are these policies right, and what do they amount to?
  neap test PATH...                          do they do what their tests say?
  neap replay LOG... --policy FILE           what a policy would have done to the calls in a log
  neap tune LOG... --policy FILE --vary KEY=VALUES
                                             which thresholds the log would have asked for
  neap simulate SCENARIO                     what outages do to fleets, retries and breakers

  neap status                                what is open in a neap that runs, since when and why
  neap top                                   the same all the time, in a terminal
  neap mode NAME MODE                        forced_open, forced_closed; policy: as the policy says
  neap trip NAME                             opens a breaker
  neap reset NAME                            closes it
  neap params NAME                           a policy's parameters; NAME=VALUE sets them
  neap queue DIRECTORY                       what waits in queues, and the dead letters

  neap COMMAND --help     more about one command
  neap --version          which neap this is

Try it: start something on port 8016, then

  neap serve --upstream http://127.0.0.1:8016 --policy policies/http_upstream.lua
  curl -i localhost:8080/
]]

help.serve = [[
neap serve: an HTTP proxy that stops calling what does not answer

  neap serve --upstream URL --policy FILE [options]
  neap serve CONFIG.lua [options]

Requests to --listen go to --upstream as long as the policy's breaker is closed. When it is open,
or a call fails, the policy's fallbacks answer; Neap-Source in each answer says who did. The policy
file may be edited while neap runs: what is saved is in force; what has a mistake is refused, and
the last good version serves.

%s

Several routes are told in a file:

  return {
    listen   = "127.0.0.1:8080",
    admin    = "127.0.0.1:9464",
    policies = { "policies" },                       -- files, or directories of them
    routes   = {
      { name = "flags", prefix = "/flags",
        upstream = "http://127.0.0.1:8016", policy = "flag_provider" },
      { name = "payments", host = "pay.internal",
        upstream = "https://pay.example.com", policy = "payments" },
    },
  }

A route takes the requests for its host (any, if none is given) whose path begins with its prefix;
the more particular one wins. Each route has a breaker of its own: its name is the key, unless `key`
says another one, or the policy's key function does; where several routes have that policy it says
which within the route's: eu/KEY. With prefix = false it takes no requests: its upstream is asked by
the fallback.guard stages of other policies that name its policy. Options on the command line go
before the file's. All there is:

  of the file   listen, admin, admin_token_file, params, policies, routes, state_dir, webhook,
                webhook_token_file, record, record_bytes, record_files, log_format,
                drain_ms, max_breakers
  of a route    name, upstream, policy; host, prefix, key
                connect_ms  for a connection, 5000      answer_ms  without timeout_ms, 60000
                http2       speak it without TLS        ca_file    in place of the system's

Signals: SIGTERM and SIGINT stop accepting and let requests end (a second one does not wait); SIGHUP
looks at all policy files at once.

Examples:

  neap serve --upstream http://127.0.0.1:8016 --policy policies/flag_provider.lua
  neap serve --listen :8080 --upstream https://api.example.com --policy policies/http_upstream.lua
  neap serve edge.lua --log-format json
  neap serve edge.lua --record /var/lib/neap/calls
  curl -s localhost:9464/breakers
  curl -s localhost:9464/breakers/flag_provider/default/mode -d 'mode=forced_open&for=10m&by=alice'
]]

help.check = [[
neap check: loads policies and says what they amount to, or what is wrong with them

  neap check PATH... [options]

PATH is a policy file or a directory of them (*.lua, but for tests: *_spec.lua, *_test.lua). Nothing
is called and nothing is changed.

%s

Exit status: 0 all are good, 1 one is not, 2 the command line is not.

Examples:

  neap check policies
  neap check policies --params production.lua
  neap check --json policies | jq '.policies[].config.trip'
]]

help.test = [[
neap test: runs the tests of policies: no dependency, no waiting

  neap test PATH... [options]

PATH is a file of tests, *_spec.lua or *_test.lua; a policy that has one beside it; or a directory,
with all below it. A test of a day takes a millisecond: the clock is moved by hand. Where something
is not as expected there is a table of what happened: each call, what it came to, and what the
breaker looked like then.

%s

A test is written in Lua:

  local t = require "neap.testing"

  t.describe("search", function()
    t.it("opens after five failures, and asks again after five seconds", function()
      local search = t.policy "search.lua"                -- beside this file
      search:calls(5, 503, { every_ms = 400 })            -- what the service answers
      search:is("open", "failures"):stays_open_for(5000)
      search:call():is_refused "open":is_answered_by "default"
      search:cool_down():call(200):is_a_probe():counts_as "success"
    end)
  end)

docs/testing.md has all there is to be said and expected. The same file runs in busted.

Exit status: 0 all is as expected, 1 something is not, or a file does not load, 2 the command line
is wrong, or there are no tests.

Examples:

  neap test policies
  neap test policies/search.lua --filter 'five failures'
  neap test --json policies | jq '.tests[] | select(.status != "passed")'
]]

help.new = [[
neap new: writes a policy and its tests, to begin with

  neap new NAME [options]

Asks a few questions on a terminal; elsewhere, and for what an option says, it does not. Writes
NAME.lua and NAME_spec.lua, and never over a file that is there.

%s

The kinds:

  http      an HTTP service
  grpc      a gRPC service
  flags     a feature flag provider (OFREP): fails open
  queue     something to be done, now or later: kept, and sent when it can be
  function  a function of a Lua program, such as a query
  rare      something that is called a few times an hour

Exit status: 0 they are written, 1 they are not, 2 the command line is wrong.

Examples:

  neap new search
  neap new flags --kind flags --dir policies --timeout-ms 50
]]

help.status = [=[
neap status: what the breakers of a neap that runs are doing, and why

  neap status [POLICY[/KEY]] [options]

A line for each breaker, those in trouble first: its state, its window, since when and why. Below
it, what is not as every day: an operator's mode, when it lets a call through again, what a shadow
policy would have done. A policy whose file has a mistake is told at the end.

%s

Exit status: 0 every breaker is closed and every policy file as it serves, 1 one is not (or there is
no such breaker), 2 the command line is wrong, 3 nobody could be asked.

Examples:

  neap status
  neap status flag_provider --json | jq '.breakers[].state'
  neap status >/dev/null || mail -s "a breaker is open" oncall </dev/null
]=]

help.mode = [=[
neap mode: sets the mode of a breaker, before what its policy and its state say

  neap mode POLICY[/KEY] auto|forced_open|forced_closed|shadow|policy [options]

forced_open lets no call through, forced_closed and shadow every one; policy gives it back to the
policy. Without a KEY it is each breaker that the policy has now. It stays through reloads, but not
through a restart, and who set it is shown by neap status and in the log.

%s

Exit status: 0 it is set, 1 it was refused, 2 the command line is wrong, 3 nobody could be asked.

Examples:

  neap mode payments forced_open --for 10m --by alice --reason 'provider asked for quiet'
  neap mode payments policy --by alice
]=]

help.trip = [=[
neap trip: opens a breaker, which then goes on as if it had tripped

  neap trip POLICY[/KEY] [options]

Without a KEY it is each breaker that the policy has now.

%s

Exit status: 0 it is open, 1 it was refused, 2 the command line is wrong, 3 nobody could be asked.

Examples:

  neap trip payments --for 30s --by alice --reason drill
]=]

help.reset = [=[
neap reset: closes a breaker, with a clean window

  neap reset POLICY[/KEY] [options]

Without a KEY it is each breaker that the policy has now.

%s

Exit status: 0 it is closed, 1 it was refused, 2 the command line is wrong, 3 nobody could be asked.

Examples:

  neap reset payments --by alice --reason repaired
]=]

help.params = [=[
neap params: shows a policy's parameters, or sets some of them

  neap params POLICY [NAME=VALUE...] [options]

What is set is in force at once, goes before files and the environment, and is gone when neap ends.
It is all of the change, or nothing and a line that says what is wrong.

%s

Exit status: 0 done, 1 it was refused, 2 the command line is wrong, 3 nobody could be asked.

Examples:

  neap params search
  neap params search timeout_ms=500 --by alice --reason 'it is slow today'
  neap params search --unset timeout_ms --by alice
]=]

help.queue = [=[
neap queue: what waits in the queues of a --state-dir, and the dead letters

  neap queue DIRECTORY [NAME] [ID] [options]

Without a NAME a line for each queue, with one a line for each of its calls: id, age, what was
asked, of a dead letter the reason; with an ID that call, without credentials.

It reads the files, and may do so beside a neap that runs. That one has its queue for itself:
--requeue and --drop are refused until it is stopped.

%s

Exit status: 0 done, 1 there is no such thing or it can't be changed now, 2 the command line is
wrong.

Examples:

  neap queue /var/lib/neap webhooks
  neap queue /var/lib/neap webhooks 0193f0c2a55b4e00000007 --requeue
  neap queue /var/lib/neap webhooks all --requeue
]=]

return help
