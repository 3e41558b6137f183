# A durable queue whose process is killed at random moments: what was answered 202 is made, in order,
# under its id.  NEAP_QUEUE_KILLS=200 NEAP_SEED=1 sh tests/hosts/test_queue_killed.sh
. "$(dirname "$0")/support.sh"

seed=${NEAP_SEED:-$(date +%s)}
mkdir -m 700 "$dir/state"
# shellcheck disable=SC2046  # words
$(sanitized "$build/lua/neap/core.so" detect_leaks=0) \
  $lua "$root/tests/hosts/queue_killed.lua" "$dir/state" "${NEAP_QUEUE_KILLS:-20}" "$seed" ||
  fail "again with NEAP_SEED=$seed"
