#!/bin/sh
# The random, threaded and killed tests of the core, and a durable queue that is killed, again and again for so many
# seconds, each time with another seed.
set -eu
cd "$(dirname "$0")/.."
tests=build/release/tests/core
export NEAP_ROOT="$PWD" NEAP_BUILD="$PWD/build/release"
export LUA_PATH="$PWD/lua/?.lua;$PWD/lua/?/init.lua;$PWD/?.lua;;" LUA_CPATH="$PWD/build/release/lua/?.so;;"
end=$(($(date +%s) + ${1:-600}))
rounds=0
while [ "$(date +%s)" -lt "$end" ]; do
  NEAP_SEED=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
  NEAP_KILLS=2000
  export NEAP_SEED NEAP_KILLS
  for test in test_core_reference test_core_threads test_core_panel_threads test_core_shared_killed; do
    if ! "$tests/$test" >build/soak.log 2>&1; then
      cat build/soak.log
      echo "again with: NEAP_SEED=$NEAP_SEED NEAP_KILLS=$NEAP_KILLS $tests/$test"
      exit 1
    fi
  done
  NEAP_QUEUE_KILLS=200 sh tests/hosts/test_queue_killed.sh || exit 1 # it names its seed
  rounds=$((rounds + 1))
done
echo "ok: $rounds rounds"
