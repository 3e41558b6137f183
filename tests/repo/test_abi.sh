# What a program that was built with the headers relies on: the layout of each struct, the value of
# each constant, the type of each function.  tests/repo/abi.txt has it for one NEAP_ABI; while that
# number stays nothing in there changes or goes.  What is new, or is that of another number:
#
#   sh tests/repo/test_abi.sh record              writes the file again, unless the number has to be
#                                                 raised
#   sh tests/repo/test_abi.sh record unreleased   in any case: no release had this number yet
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
record=tests/repo/abi.txt
headers="core/include/neap/neap.h core/include/neap/panel_shared.h lua/engine/include/neap/engine.h"

# abi_of ROOT: all of it, one fact a line, of the headers there.
abi_of() {
  (
    cd "$1"
    seen() { clang -std=c11 -Icore/include -Ilua/engine/include -fsyntax-only -Xclang "$1" "$tmp/all.c"; }
    for header in $headers; do echo "#include <neap/${header##*/}>"; done >"$tmp/all.c"
    seen -fdump-record-layouts-complete | awk '
      $1 == "***" { name = "" }
      $3 == "struct" && name == "" { name = $4 }
      name ~ /^neap_/ && $4 != name { sub(/ *\| */, " "); sub(/^ */, ""); print name, $0 }'
    seen -ast-dump >"$tmp/tree"
    sed -n "s/.*FunctionDecl .* \(neap_[a-z_]* '.*'\).*/\1/p; s/.*VarDecl .* \(neap_[a-z_]* '.*'\).*/\1/p" \
      "$tmp/tree"
    {
      echo '#include <stdio.h>'
      cat "$tmp/all.c"
      echo 'int main(void) {'
      {
        sed -n 's/.*EnumConstantDecl .* \(NEAP_[A-Z0-9_]*\) .*/\1/p' "$tmp/tree"
        sed -n 's/^#define \(NEAP_[A-Z0-9_]*\) [^"]*$/\1/p' $headers | grep -v '^NEAP_VERSION\|^NEAP_API$'
      } | while read -r name; do printf 'printf("%s %%lld\\n", (long long)%s);\n' "$name" "$name"; done
      echo '}'
    } >"$tmp/values.c"
    clang -std=c11 -Icore/include -Ilua/engine/include "$tmp/values.c" -o "$tmp/values"
    "$tmp/values"
  ) | LC_ALL=C sort -u >"$2"
}

number_in() { sed -n 's/^NEAP_ABI //p' "$1"; }

# judge NOW: fails, and says what is to be done, unless it is as recorded
judge() {
  LC_ALL=C comm -23 "$record" "$1" >"$tmp/lost"
  LC_ALL=C comm -13 "$record" "$1" >"$tmp/new"
  # A member where there was padding changes no size, and was never set.
  sed -n 's/^\(neap_[a-z_]*\) \[sizeof.*/^\1 [0-9]/p' "$record" | grep -f - "$tmp/new" >>"$tmp/lost" || :
  if [ "$(number_in "$record")" = "$(number_in "$1")" ] && [ -s "$tmp/lost" ]; then
    echo "a program that was built before goes wrong with these: raise NEAP_ABI in neap.h, or, if no"
    echo "release had this number yet: sh tests/repo/test_abi.sh record unreleased"
    cat "$tmp/lost"
    return 2
  elif [ -s "$tmp/lost" ] || [ -s "$tmp/new" ]; then
    echo "not yet in $record: sh tests/repo/test_abi.sh record"
    cat "$tmp/new"
    return 1
  fi
}

abi_of . "$tmp/now"
if [ "${1:-}" = record ]; then
  judge "$tmp/now" >"$tmp/said" && status=0 || status=$?
  [ "$status" -lt 2 ] || [ "${2:-}" = unreleased ] || { cat "$tmp/said" && exit 1; }
  cp "$tmp/now" "$record"
  exit
fi
judge "$tmp/now"
for kind in "^neap_rules \[sizeof=" "^neap_engine_options 0 " "^NEAP_HALF_OPEN 1$" "^NEAP_NAME_MAX " \
  "^neap_shared_open '" "^neap_duration_bounds_ms '"; do
  grep -q "$kind" "$record" || { echo "$record: no $kind" && exit 1; }
done
echo "ok: $(wc -l <"$record") facts of NEAP_ABI $(number_in "$record")"

# It sees what it should.
# changed STATUS FILE FROM TO: the headers with that change
changed() {
  rm -rf "$tmp/tree.d"
  for header in $headers; do
    mkdir -p "$tmp/tree.d/${header%/*}"
    cp "$header" "$tmp/tree.d/$header"
  done
  sed -i "s/$3/$4/" "$tmp/tree.d/$2"
  ! cmp -s "$2" "$tmp/tree.d/$2" || { echo "no $3 in $2" && exit 1; }
  abi_of "$tmp/tree.d" "$tmp/then"
  judge "$tmp/then" >"$tmp/said" && status=0 || status=$?
  [ "$status" -eq "$1" ] || { echo "$3 -> $4: $status, not $1" && cat "$tmp/said" && exit 1; }
}
neap=core/include/neap/neap.h engine=lua/engine/include/neap/engine.h
changed 2 $neap "uint32_t cooldown_ms;" "uint64_t cooldown_ms;"
changed 2 $neap "uint64_t measured;" "uint64_t limit_;" # as wide, another name: another meaning
changed 2 $neap "NEAP_CLOSED = 0, NEAP_HALF_OPEN = 1" "NEAP_CLOSED = 1, NEAP_HALF_OPEN = 0"
changed 2 $neap "#define NEAP_NAME_MAX 103" "#define NEAP_NAME_MAX 99"
changed 2 $engine "bool no_watch;" "bool no_watch; bool no_log;"
changed 2 $engine "neap_engine_close(neap_engine \*engine," "neap_engine_close(neap_engine **engine,"
changed 1 $neap "^NEAP_API uint32_t neap_abi(void);" "&\nNEAP_API uint32_t neap_more(void);"
changed 1 $neap "^#define NEAP_ABI .*" "#define NEAP_ABI 99"
changed 0 $neap "uint32_t neap_panel_capacity(const neap_panel \*p)" "uint32_t neap_panel_capacity(const neap_panel *of)"
echo "ok: what breaks a program, and what does not"
