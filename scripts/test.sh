#!/bin/sh
# Everything that can be checked: all tests on gcc, what matters again under the sanitizers and clang,
# a release build of what is shipped.
# Goes on after a failure, so that one run shows all of them; the last lines say how each part went.
set -u
cd "$(dirname "$0")/.." || exit
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
at_once=$((jobs + 1)) # many tests wait for a clock or another process
logs=build/test-logs
mkdir -p "$logs"
: >"$logs/summary"
failed=0

# part NAME COMMAND...: runs it, and keeps its last word for the summary.
part() {
  name=$1
  shift
  echo "== $name: $*"
  begin=$(date +%s)
  if "$@" >"$logs/$name.log" 2>&1; then
    result=ok
  else
    result=FAILED
    failed=1
    grep -vE '^ *[0-9]+/[0-9]+ Test .* Passed|^ +Start ' "$logs/$name.log" | tail -150
  fi
  last=$(grep -E 'tests passed' "$logs/$name.log" | tail -1)
  printf '%-14s %-6s %4ds  %s\n' "$name" "$result" "$(($(date +%s) - begin))" "$last" | tee -a "$logs/summary"
  [ "$result" = ok ]
}

# build PRESET [TARGETS]: all, or those
build() {
  preset=$1
  shift
  cmake --preset "$preset" && cmake --build --preset "$preset" --parallel "$jobs" ${1:+--target "$@"}
}

part dev-build build dev && part dev ctest --preset dev -j "$at_once"
part asan-build build asan && part asan ctest --preset asan -j "$at_once" -LE "gc|repo|model|fuzz"
part tsan-build build tsan && part tsan ctest --preset tsan -j "$jobs" -R "thread"
part clang-build build clang && part clang ctest --preset clang -j "$at_once" -LE "gc|repo|model|fuzz|versions|scripts"
part release-build build release neap_shared neap_lua neap_lua5.1 neap_lua5.3 neap_program

echo
echo "== summary (logs: $logs/)"
cat "$logs/summary"
exit "$failed"
