# Params in nginx: files laid over each other, and the environment before them, also after a reload of
# nginx itself (B124).
. "$(dirname "$0")/nginx_support.sh"

mkdir -p "$dir/policies"
cat >"$dir/policies/shop.lua" <<'END'
params.declare {
  failures = { type = "whole", min = 1, max = 100, default = 50 },
  cooldown_ms = { type = "ms", min = 100, max = 60000, default = 5000 },
  level = { type = "text", default = "default" },
}
return { name = "shop", trip = { consecutive_failures = params.failures },
  open = { cooldown_ms = params.cooldown_ms } }
END
echo 'return { shop = { failures = 40, cooldown_ms = 1000, level = "base" } }' >"$dir/base.lua"
echo 'return { shop = { cooldown_ms = 2000 } }' >"$dir/over.lua"
chmod -R a+rX "$dir/policies" "$dir/base.lua" "$dir/over.lua"
export NEAP_PARAM_SHOP__FAILURES=3
processes=1
nginx_serve params "
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { policies = '$dir/policies', params = { '$dir/base.lua', '$dir/over.lua' } }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  server {
    listen 127.0.0.1:$port reuseport;
    location / {
      allow 127.0.0.1;
      deny all;
      content_by_lua_block { neap.admin '/' }
    }
  }"

cat >"$dir/in_force.lua" <<'END'
for _, row in ipairs(require("cjson").decode(io.read("a")).params) do
  local value = type(row.value) == "number" and ("%.14g"):format(row.value) or row.value
  print(("%s %s %s"):format(row.name, value, row.from))
end
END
in_force() { curl -s "$site/policies/shop/params" | $lua "$dir/in_force.lua" | grep -qxF "$1"; }
all() {
  in_force "failures 3 NEAP_PARAM_SHOP__FAILURES" || fail "$1: the environment does not count"
  in_force "cooldown_ms 2000 $dir/over.lua:1" || fail "$1: the later file does not count"
  in_force "level base $dir/base.lua:1" || fail "$1: the first file does not count"
}
all "at the start"
gets 501 /policies/shop/params -d failures=5 -d by=ann

kill -HUP "$pid"
reloaded() { grep -q 'gracefully shutting down' "$dir/params/error.log"; }
within 10 reloaded
within 10 in_force "level base $dir/base.lua:1"
all "B124: after a reload"

echo 'return { shop = { cooldown_ms = 3000 } }' >"$dir/over.lua"
within 10 in_force "cooldown_ms 3000 $dir/over.lua:1"
grep -q 'shop: params 2: cooldown_ms 2000 -> 3000 (.*over.lua:1)' "$dir/params/error.log" ||
  fail "the log does not tell"
in_force "failures 3 NEAP_PARAM_SHOP__FAILURES" || fail "B124: the environment is forgotten"
nginx_stop
