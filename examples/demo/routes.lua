-- Two routes in one neap:  neap serve examples/demo/routes.lua
return {
  listen   = "127.0.0.1:8080",
  admin    = "127.0.0.1:9464",
  policies = { "policies/flag_provider.lua", "policies/http_upstream.lua" },

  routes = {
    -- The flags have a dependency, a policy and a breaker of their own.
    { name = "flags", prefix = "/flags", policy = "flag_provider",
      upstream = "http://127.0.0.1:8016" },

    -- All that is asked of the host www.example.com, /flags too: a route that names a host goes
    -- before those that don't. The path stays as it is.
    { name = "web", host = "www.example.com", policy = "http_upstream",
      upstream = "http://127.0.0.1:8016" },
  },
}
