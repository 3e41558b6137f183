# neap top in a real terminal, through an outage, by its keys and its signals.
. "$(dirname "$0")/support.sh"

set -- $(free_ports 3)
upstream=$1 listen=$2 admin=$3

tmux() { command tmux -L "neap-$$" -f /dev/null "$@"; }
end() {
  tmux kill-server 2>/dev/null || :
  finish
}
trap end EXIT

policy flags "
  window = { kind = 'time', length_ms = 10000 },
  trip = { failures = 3 }, open = { cooldown_ms = 1500, jitter = 0, backoff = 1 },
  half_open = { probes = 1, successes = 1, concurrent = 1, lease_ms = 5000 },
  key = function(call)
    local tenant = call.request and call.request.headers['x-tenant']
    return tenant == 'coffee' and 'caf\\195\\169' or tenant
  end,
  fallback = { fallback.default { status = 200, body = 'off' } },"
$lua examples/demo/upstream.lua --listen "127.0.0.1:$upstream" --quiet >"$dir/log" 2>&1 &
pids="$pids $!"
start_neap() {
  "$NEAP_BIN" serve --listen "127.0.0.1:$listen" --admin "127.0.0.1:$admin" \
    --upstream "http://127.0.0.1:$upstream" --policy "$dir/policies/flags.lua" >>"$dir/neap.log" 2>&1 &
  neap=$!
  pids="$pids $neap"
  within 10 curl -sf "127.0.0.1:$admin/healthz" -o "$dir/health"
}
start_neap

call() { curl -s -o "$dir/body" "127.0.0.1:$listen/flags/a" -H "X-Tenant: $1"; }
fails() { curl -s -o "$dir/body" -X POST "127.0.0.1:$upstream/_fail?mode=$1"; }

# What the terminal shows; a line of it that matches.
screen() { tmux capture-pane -p -t top >"$dir/screen" && cat "$dir/screen"; }
sees() { screen | grep -qE -- "$1"; }
has_shown() { tmux capture-pane -p -S - -t top | grep -qE -- "$1"; } # what went off its top, too
sees_not() { ! sees "$1"; }
# as soon as it has asked: it asks every other second, and when it is told to
soon() { keys C-l && sees "$1"; }
keys() { tmux send-keys -t top "$@"; }
# top [VARIABLE=VALUE]...: then a shell's line, to see what is left of the terminal
top() {
  tmux kill-session -t top 2>/dev/null || :
  tmux new-session -d -s top -x 110 -y 20 \
    "echo before; env LC_ALL=C.UTF-8 $* '$NEAP_BIN' top --admin 127.0.0.1:$admin; echo status \$?; stty -a; sleep 100"
  within 10 sees '^neap 127.0.0.1.* live '
}
# The terminal is as it was: its own screen, its own lines, echo.
is_restored() {
  within 10 sees "^status $1\$"
  has_shown '^before$' || fail "the screen of before is not back: $(screen)"
  sees ' echo ' || fail "no echo: $(screen)"
  [ "$(tmux display-message -p -t top '#{cursor_flag}#{alternate_on}')" = 10 ] || fail "cursor or screen are not back"
}

tmux new-session -d -s kept 'sleep 600' # a server of tmux ends with its last session

# ---- Without a terminal ----
got=0
said=$("$NEAP_BIN" top --admin "127.0.0.1:$admin" 2>&1 </dev/null) || got=$?
[ "$got $said" = "2 neap top: needs a terminal; elsewhere there is neap status" ] || fail "$got $said"

# ---- Through an outage ----
call shop
call books
top
sees '^> closed  *flags/books .* / 3' || fail "$(screen)"
fails 500
for i in 1 2 3; do call shop; done
within 10 soon '^ *OPEN [12] s  *flags/shop '
sees '  1 open ' || fail "$(screen)"
sees '^> closed  *flags/books' || fail "what was chosen is so no more: $(screen)"
[ "$(screen | grep -n flags/shop | head -1 | cut -d: -f1)" -lt "$(screen | grep -n flags/books | head -1 | cut -d: -f1)" ] || fail "trouble first"
keys k Enter
within 10 sees 'closed -> open: 3 failures in 3 calls, limit 3|closed -> open: 3 failures in 4 calls'
keys G
within 5 sees 'trip  *failures = 3$'
keys q
within 5 sees '^> .*flags/shop'
within 10 soon '^> OPEN probe due|^> half-open 0/1'
fails ok
call shop
within 10 soon '^> closed .*flags/shop|^  closed .*flags/shop'

# ---- Keys, sizes, what clients put into names ----
call coffee
curl -sf -o "$dir/body" "127.0.0.1:$admin/breakers/flags/books/mode" -d mode=forced_closed -d by=eve -d 'reason=%1B[2Jx%0Ay'
keys /
keys books Enter
within 5 sees_not flags/shop
keys / Escape
within 5 sees flags/shop
keys s
within 5 sees 's sort: name'
tmux resize-window -t top -x 40 -y 9
within 5 sees 'live|neap 127'
screen | awk '{ if (length($0) > 40) exit 1 }' || fail "wider than it is: $(screen)"
tmux resize-window -t top -x 110 -y 20
within 5 sees 'NEAREST LIMIT'
within 5 soon 'set by eve: .x1b.2Jx.x0ay' # and does nothing to the terminal
within 5 sees 'flags/café  '

# ---- neap goes, and comes back ----
kill -KILL "$neap"
within 10 soon '^No answer: .* What you see is [0-9]* s old; trying again in'
sees flags/shop || fail "what is known is gone"
start_neap
call again
within 10 soon 'flags/again'
sees_not 'No answer' || fail "$(screen)"

# ---- Ctrl-Z, and on again ----
top_pid() { pgrep -f "top --admin 127.0.0.1:$admin" | tail -1; }
keys C-z
within 5 sees '^before$'
[ "$(tmux display-message -p -t top '#{cursor_flag}#{alternate_on}')" = 10 ] || fail "the terminal is kept while it is stopped"
grep -q '^State:.T' "/proc/$(top_pid)/status" || fail "it goes on"
kill -CONT "$(top_pid)"
within 5 sees '^neap 127.0.0.1.* live '
[ "$(tmux display-message -p -t top '#{cursor_flag}#{alternate_on}')" = 01 ] || fail "not a screen of its own"

# ---- However it ends ----
keys q
is_restored 0
top
keys C-c
is_restored 0
for signal in TERM:143 HUP:129; do
  top
  kill -"${signal%:*}" "$(top_pid)"
  is_restored "${signal#*:}"
done
fails 500
for i in 1 2 3; do call again; done
top NO_COLOR=1
sees 'OPEN' || fail "$(screen)"
tmux capture-pane -pe -t top | grep -q "$(printf '\033')\\[3" && fail "colours"
keys q
is_restored 0

# A fault of our own, here by a neap that says what none does.
kill -KILL "$neap"
wait "$neap" 2>"$dir/err" || :
$lua - "$admin" >>"$dir/log" 2>&1 <<'LUA' &
local uv, asked = require "luv", 0
local BODY = [=[{"instance":"1","page":"x","version":1,"now":0,"step":1,"step_ms":4000,"steps":2,
"fields":["policy","key","state","mode","mode_until","calls","failures","slow","in_a_row","admitted","level",
"probe_at","over"],"policies":[],"rows":[["p","k","%s","auto",0,0,0,0,0,1,0,0,0]],"count":1}]=]
local server = uv.new_tcp()
assert(server:bind("127.0.0.1", tonumber(arg[1])))
assert(server:listen(16, function()
  local client = uv.new_tcp()
  server:accept(client)
  asked = asked + 1
  local body = BODY:format(asked == 1 and "closed" or "ajar")
  client:write(("HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s"):format(#body, body))
  client:shutdown(function() client:close() end)
end))
uv.run()
LUA
pids="$pids $!"
listens() { grep -q ":$(printf %04X "$admin") 00000000:0000 0A" /proc/net/tcp; }
within 5 listens
top
keys C-l
is_restored 1
has_shown '^neap top: a fault in neap itself: ' || fail "$(screen)"
