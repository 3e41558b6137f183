#!/bin/sh
# Each fuzzer of tests/fuzz for so many seconds; inputs that were found stay in build/fuzz.
set -eu
cd "$(dirname "$0")/.."
for fuzzer in tests/fuzz/*_fuzz.sh; do
  case $fuzzer in */test_*) continue ;; esac
  echo "== $fuzzer"
  sh "$fuzzer" "${1:-60}"
done
