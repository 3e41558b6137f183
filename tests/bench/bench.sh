#!/bin/sh
# bench.sh BUILD [--json] [--rounds=N]: builds the measuring programs and runs bench.lua.
set -eu
cmake --build "$1" --target bench neap_program >/dev/null 2>&1 || cmake --build "$1" --target bench neap_program
exec lua5.4 "$(dirname "$0")/bench.lua" "$@"
