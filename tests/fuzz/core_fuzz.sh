#!/bin/sh
# Fuzzes the core for so many seconds (default 60; 0: until it is stopped).  Further arguments go to libFuzzer.
# Found inputs are kept in build/fuzz/core; a failing one is named in the last lines and can be given instead of a number of seconds.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out="$root/build/fuzz"
clang=${CLANG:-clang}
command -v "$clang" >/dev/null || { echo "core_fuzz.sh: clang is needed (Debian: apt-get install clang)" >&2; exit 1; }
mkdir -p "$out/core"
"$clang" -std=c11 -g -O1 -D_GNU_SOURCE= -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I"$root/core/include" -I"$root/core/src" -I"$root/tests/core" \
  "$root/tests/fuzz/core_fuzz.c" "$root"/core/src/*.c -lcmocka -o "$out/core_fuzz"
cd "$out"
if [ $# -gt 0 ] && [ -f "$1" ]; then exec ./core_fuzz "$@"; fi
seconds=${1:-60}
[ $# -gt 0 ] && shift
exec ./core_fuzz -max_total_time="$seconds" -max_len=8192 -len_control=20 -timeout=10 -print_final_stats=1 "$@" core
