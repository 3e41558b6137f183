#!/bin/sh
# The random and the threaded tests of the core, again and again for so many seconds, each time with another seed.
set -eu
cd "$(dirname "$0")/.."
tests=build/release/tests/core
end=$(($(date +%s) + ${1:-600}))
rounds=0
while [ "$(date +%s)" -lt "$end" ]; do
  NEAP_SEED=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
  export NEAP_SEED
  for test in test_reference test_threads test_panel_threads; do
    if ! "$tests/$test" >build/soak.log 2>&1; then
      cat build/soak.log
      echo "again with: NEAP_SEED=$NEAP_SEED $tests/$test"
      exit 1
    fi
  done
  rounds=$((rounds + 1))
done
echo "ok: $rounds rounds"
