#!/bin/sh
# Fuzzes the reading of heads and chunked bodies for so many seconds (default 60; 0: until it is
# stopped), beginning with http_seeds.txt.  Further arguments go to libFuzzer.  Found inputs are
# kept in build/fuzz/http; a failing one is named in the last lines and can be given instead of a
# number of seconds.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out="$root/build/fuzz"
http="$root/lua/engine/http"
clang=${CLANG:-clang}
command -v "$clang" >/dev/null || { echo "http_fuzz.sh: clang is needed (Debian: apt-get install clang)" >&2; exit 1; }
parser=-lhttp_parser
if echo "#include <llhttp.h>" | "$clang" -E -xc - >/dev/null 2>&1; then
  parser="-DNEAP_LLHTTP=1 -lllhttp"
fi
mkdir -p "$out/http"
# shellcheck disable=SC2086  # words
"$clang" -std=c11 -g -O1 -D_GNU_SOURCE= -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I"$root/core/include" -I"$root/lua/engine/include" -I"$http" \
  "$root/tests/fuzz/http_fuzz.c" "$http/head.c" "$http/parser.c" "$http/chunks.c" "$http/limits.c" \
  $parser -o "$out/http_fuzz"
cd "$out"
i=0
while read -r seed; do
  i=$((i + 1))
  printf %b "$seed" >"http/seed$i"
done <"$root/tests/fuzz/http_seeds.txt"
if [ $# -gt 0 ] && [ -f "$1" ]; then exec ./http_fuzz "$@"; fi
seconds=${1:-60}
[ $# -gt 0 ] && shift
exec ./http_fuzz -max_total_time="$seconds" -max_len=4096 -timeout=10 -print_final_stats=1 "$@" http
