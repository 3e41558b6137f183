#!/bin/sh
# rename.sh NM OBJCOPY FROM TO: a copy of a library with single_ before every name that it defines.
set -eu
nm=$1 objcopy=$2 from=$3 to=$4
"$nm" --defined-only -g "$from" | awk 'NF == 3 { print $3, "single_" $3 }' >"$to.names"
"$objcopy" --redefine-syms="$to.names" "$from" "$to"
