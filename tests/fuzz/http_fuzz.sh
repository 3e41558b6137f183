#!/bin/sh
# Fuzzes the reading of heads and chunked bodies for so many seconds (default 60; 0: until it is
# stopped). Further arguments go to libFuzzer.  Found inputs are kept in build/fuzz/http; a failing
# one is named in the last lines and can be given instead of a number of seconds.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out="$root/build/fuzz"
http="$root/lua/engine/http"
clang=${CLANG:-clang}
command -v "$clang" >/dev/null || { echo "http_fuzz.sh: clang is needed (Debian: apt-get install clang)" >&2; exit 1; }
mkdir -p "$out/http"
"$clang" -std=c11 -g -O1 -D_GNU_SOURCE= -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I"$root/core/include" -I"$root/lua/engine/include" -I"$http" \
  "$root/tests/fuzz/http_fuzz.c" "$http/head.c" "$http/parser.c" "$http/chunks.c" "$http/limits.c" \
  -lhttp_parser -o "$out/http_fuzz"
cd "$out"
printf 'GET /a?b HTTP/1.1\r\nHost: a:80\r\nConnection: close, x\r\nExpect: 100-continue\r\n\r\n' >http/seed1
printf 'POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n' >http/seed2
printf 'PUT / HTTP/1.0\r\nContent-Length: 5\r\nUpgrade: h2c\r\n\r\nhello' >http/seed3
if [ $# -gt 0 ] && [ -f "$1" ]; then exec ./http_fuzz "$@"; fi
seconds=${1:-60}
[ $# -gt 0 ] && shift
exec ./http_fuzz -max_total_time="$seconds" -max_len=4096 -timeout=10 -print_final_stats=1 "$@" http
