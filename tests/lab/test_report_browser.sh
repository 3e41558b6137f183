# A report in a real browser: see report_browser.js.
. "$(dirname "$0")/../hosts/support.sh"

modules=build/npm/page/node_modules
[ -d "$modules" ] || fail "$modules is not there: run scripts/deps.sh test"
cat >"$dir/x.lua" <<'LUA'
return {
  name = "x", title = "<script>alert(1)</script>", duration_ms = 30000,
  services = {
    a = { replicas = 3, arrivals = { { kind = "even", per_s = 50 } }, calls = { { to = "b", policy = {
      trip = { consecutive_failures = 3 }, open = { cooldown_ms = 2000 } } } } },
    b = { latency = 20, workers = 9, queue = 9,
      faults = { { kind = "outage", from_ms = 10000, for_ms = 5000 } } },
  },
  runs = { { name = "<b>one</b>" }, { name = "two" } },
}
LUA
"${NEAP_BIN:?}" simulate "$dir/x.lua" --html "$dir/x.html" >/dev/null
export NODE_PATH=$modules
node tests/lab/report_browser.js "$dir/x.html"
