--- What `neap --help` and `neap COMMAND --help` say.

local help = {}

help.neap = [[
neap: a circuit breaker in front of what your program calls

  neap serve --upstream URL --policy FILE    a sidecar: HTTP proxy with breakers and fallbacks
  neap serve CONFIG.lua                      the same, with several routes
  neap check PATH...                         are these policies right, and what do they amount to?

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
says another one. Options on the command line go before the file's. All there is:

  of the file   listen, admin, admin_token_file, params, policies, routes, log_format, drain_ms,
                max_breakers
  of a route    name, upstream, policy; host, prefix, key
                connect_ms  for a connection, 5000      answer_ms  without timeout_ms, 60000
                http2       speak it without TLS        ca_file    in place of the system's

Signals: SIGTERM and SIGINT stop accepting and let requests end (a second one does not wait); SIGHUP
looks at all policy files at once.

Examples:

  neap serve --upstream http://127.0.0.1:8016 --policy policies/flag_provider.lua
  neap serve --listen :8080 --upstream https://api.example.com --policy policies/http_upstream.lua
  neap serve edge.lua --log-format json
  curl -s localhost:9464/breakers
  curl -s localhost:9464/breakers/flag_provider/default/mode -d 'mode=forced_open&for=10m&by=alice'
]]

help.check = [[
neap check: loads policies and says what they amount to, or what is wrong with them

  neap check PATH... [options]

PATH is a policy file or a directory of them (*.lua). Nothing is called and nothing is changed.

%s

Exit status: 0 all are good, 1 one is not, 2 the command line is not.

Examples:

  neap check policies
  neap check policies --params production.lua
  neap check --json policies | jq '.policies[].config.trip'
]]

return help
