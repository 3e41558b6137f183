std = "lua54"
max_line_length = 100
exclude_files = { "build", "tmp" }

-- What the sandbox gives a policy file.
local policy = { read_globals = { "classify", "digest", "fallback", "params", "warn" } }
files["policies"] = policy
files["examples/**/policies"] = policy
files["lua/neap/lab/scenarios"] = { read_globals = { "params" } }
files["lua/**/nginx*.lua"] = { std = "ngx_lua" }
files["lua/**/haproxy*.lua"] = { read_globals = { "core", "act" } }
files["tests"] = { std = "+busted" }
files["tests/bench/haproxy.lua"] = { globals = { "core" } }
