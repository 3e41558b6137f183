#!/bin/sh
# A dependency and a sidecar in front of it, to watch: see `make help`.
set -eu
cd "$(dirname "$0")/.."
upstream_port=${UPSTREAM_PORT:-8016}
listen_port=${LISTEN_PORT:-8080}
admin_port=${ADMIN_PORT:-9464}
policy=${POLICY:-policies/flag_provider.lua}

# NEAP_BIN: a neap that is built already.
if [ -z "${NEAP_BIN:-}" ]; then
  tree=build/run # a tree of its own: the program, no tests
  [ ! -w build/install/CMakeCache.txt ] || tree=build/install # as in the README: there already
  NEAP_BIN=$tree/bin/neap
  echo "building $NEAP_BIN"
  log=$(mktemp)
  if ! { cmake -S . -B "$tree" -DCMAKE_BUILD_TYPE=Release -DNEAP_TESTS=OFF &&
    cmake --build "$tree" --target neap_program --parallel; } >"$log" 2>&1; then
    tail -40 "$log" >&2
    exit 1
  fi
  rm -f "$log"
fi

# Ctrl-C and a shell's kill %1 reach every process of the job.  Only this one is in it: the two have
# sessions of their own, or each signal would come twice.  The sidecar drains, and the upstream
# outlives it, so that what is under way gets its whole answer.  Each further signal is passed on,
# too: the sidecar doesn't wait any longer then.
apart=$(command -v setsid || :) # not everywhere; without, Ctrl-C is still right
# A shell's background job ignores SIGINT, and so does what it runs, unless it is told not to.
hears="" # not everywhere, either; without, a Ctrl-C is passed on as SIGTERM
if env --default-signal=INT true 2>/dev/null; then hears="env --default-signal=INT"; fi
upstream="" sidecar="" is_asked=""
ask() { # SIGNAL
  is_asked=$1
  [ -n "$hears" ] || is_asked=TERM
  [ -z "$sidecar" ] || kill -"$is_asked" "$sidecar" 2>/dev/null || :
}
runs() { [ -n "$1" ] && kill -0 "$1" 2>/dev/null; }
finish() {
  [ -n "$is_asked" ] || ask TERM
  while runs "$sidecar"; do wait "$sidecar" || :; done # a signal ends a wait early
  runs "$upstream" && kill -TERM "$upstream" || :
  while runs "$upstream"; do wait "$upstream" || :; done
}
trap 'ask INT' INT
trap 'ask TERM' HUP QUIT TERM
trap finish EXIT

$apart lua5.4 examples/demo/upstream.lua --until-term --listen "127.0.0.1:$upstream_port" &
upstream=$!
$apart $hears "$NEAP_BIN" serve --listen "127.0.0.1:$listen_port" --upstream "http://127.0.0.1:$upstream_port" \
  --policy "$policy" ${PARAMS:+--params "$PARAMS"} --admin "127.0.0.1:$admin_port" &
sidecar=$!
[ -z "$is_asked" ] || ask "$is_asked" # before there was a sidecar to ask

both_run() { runs "$upstream" && runs "$sidecar"; }

tries=0
until curl -sf "localhost:$admin_port/healthz" >/dev/null 2>&1; do
  [ -z "$is_asked" ] || exit 0
  tries=$((tries + 1))
  if ! both_run || [ "$tries" -gt 100 ]; then
    echo "make run: did not come up; the lines above say why" >&2
    exit 1
  fi
  sleep 0.1 || :
done

cat <<EOF

  upstream  http://localhost:$upstream_port    a flag provider that misbehaves when told to
  neap      http://localhost:$listen_port    in front of it, with $policy
  admin     http://localhost:$admin_port    a page, in a browser; /metrics /breakers /policies

Try, in another terminal:

  curl -si localhost:$listen_port/flags/new-checkout             # 200, Neap-Source: primary
  curl -s -X POST "localhost:$upstream_port/_fail?mode=500"       # it breaks: ask again a few times
                                                         # Neap-Source: last_good; a new flag: default
  curl -s localhost:$admin_port/metrics | grep neap_breaker_state
  curl -s -X POST "localhost:$upstream_port/_fail?mode=ok"        # it is back: in some seconds, primary
  \$EDITOR $policy                       # e.g. failures = 2: in force when saved

Ctrl-C stops both.

EOF

while [ -z "$is_asked" ] && both_run; do sleep 0.2 || :; done
[ -z "$is_asked" ] || exit 0
if runs "$sidecar"; then ended="the upstream"; else ended="neap"; fi
echo "make run: $ended has ended, so all of it does" >&2
exit 1
