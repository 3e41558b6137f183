#!/bin/sh
# Fuzzes the reading of logs for so many seconds (default 60; 0: until it is stopped), beginning with
# the samples of tests/lab/logs.  Further arguments go to libFuzzer.  Found inputs are kept in
# build/fuzz/lab; a failing one is named in the last lines and can be given instead of a number of
# seconds.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out="$root/build/fuzz"
lab="$root/lua/engine/lab"
clang=${CLANG:-clang}
command -v "$clang" >/dev/null || { echo "lab_fuzz.sh: clang is needed (Debian: apt-get install clang)" >&2; exit 1; }
mkdir -p "$out/lab"
sources=""
for file in detect fields har input lane lane_keys names object reader recording row series template text; do
  sources="$sources $lab/$file.c"
done
# shellcheck disable=SC2086  # words
"$clang" -std=c11 -g -O1 -D_GNU_SOURCE= -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I"$root/core/include" -I"$root/core/src" -I"$lab" "$root/tests/fuzz/lab_fuzz.c" $sources \
  "$root"/core/src/*.c -lz -o "$out/lab_fuzz"
cd "$out"
# One of each way of reading, the format found out and given.
seed() {
  printf %b "$2" >"lab/seed-$1-$3"
  cat "$root/tests/lab/logs/$3" >>"lab/seed-$1-$3"
}
for file in "$root"/tests/lab/logs/*; do seed auto '\000' "${file##*/}"; done
seed two '\240' combined.log
seed json '\003' app.jsonl
seed csv '\004' calls.csv
seed har '\005' browser.har
seed nginx '\010' nginx_upstream.log
seed apache '\011' apache.log
printf '\000#neap-recording 1\nt 1760104536000\np 0 shop 0f 7\nk 0 0 a%%20b\nc 0 5 3 a200 j=s\nc 0 9 3 t j=t s=4\nd 3\nc 0 1 0 r\nf 0 0 last_good 12\n' >lab/seed-recording
{ printf '\000'; gzip -nc "$root/tests/lab/logs/combined.log"; } >lab/seed-gzip
if [ $# -gt 0 ] && [ -f "$1" ]; then exec ./lab_fuzz "$@"; fi
seconds=${1:-60}
[ $# -gt 0 ] && shift
exec ./lab_fuzz -max_total_time="$seconds" -max_len=8192 -timeout=10 -print_final_stats=1 "$@" lab
