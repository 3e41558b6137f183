# exported.sh HEADER LIBRARY: a shared library exports what its header declares with NEAP_API, and
# nothing else.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# A declaration's name is the last word before its first bracket.
grep -v '^#' "$1" | tr '\n' ' ' | grep -o 'NEAP_API [^;]*;' |
  sed 's/[[(].*//; s/.*[ *]//' | sort >"$tmp/declared"
nm -D --defined-only "$2" | awk '{ print $3 }' | sort >"$tmp/exported"
[ -s "$tmp/declared" ]
diff "$tmp/declared" "$tmp/exported" >"$tmp/diff" || {
  echo "$2: < declared in $1 but not exported, > exported but not declared"
  cat "$tmp/diff"
  exit 1
}
echo "ok: ${2##*/} exports the $(wc -l <"$tmp/exported") names of ${1##*/}"
