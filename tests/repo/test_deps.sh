# scripts/deps.sh: silent where all is there; where something is missing and there is no apt-get, a list that says what and why.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ -z "$(scripts/deps.sh test)" ]
echo "ok: silent when nothing is missing"

# A machine without apt-get and clang: everything else by another name.
mkdir "$tmp/bin"
for dir in /usr/local/bin /usr/bin /bin; do
  for tool in "$dir"/*; do
    case ${tool##*/} in apt-get | clang | clang-format) ;; *) ln -sf "$tool" "$tmp/bin/" ;; esac
  done
done
if PATH="$tmp/bin" scripts/deps.sh test >"$tmp/out" 2>&1; then
  echo "must fail"
  exit 1
fi
grep -q "command:clang  *the other compiler (on Debian: clang)" "$tmp/out"
grep -q "command:clang-format" "$tmp/out"
[ "$(grep -c "on Debian" "$tmp/out")" -eq 3 ] # and the fuzzer's runtime, which clang brings
echo "ok: a list of what is missing elsewhere"
PATH="$tmp/bin" scripts/deps.sh run
echo "ok: what only the tests need is not asked for by make run"
