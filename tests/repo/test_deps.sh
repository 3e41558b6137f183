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
rm "$tmp/bin/file" # cpack asks it what is a library
if PATH="$tmp/bin" scripts/deps.sh packages >"$tmp/out" 2>&1; then exit 1; fi
grep -q "command:file .*(on Debian: file)" "$tmp/out"
PATH="$tmp/bin" scripts/deps.sh run
echo "ok: what only make packages needs is not asked for by make run"

# What `deps.sh run` brings is enough for what the README says comes next, and what it brings for
# `make packages` for that: all other modules are out of sight.  In a directory of its own: the one
# above is full of links to the system's programs, and writing to one would write there.
mkdir "$tmp/own"
cat >"$tmp/own/pkg-config" <<END
#!/bin/sh
for word in "\$@"; do
  name=\$(echo "\${word%% *}" | tr -d .-) # lua5.3, lua-5.3 and lua53 are one
  case " \$HIDDEN " in *" \$name "*) exit 1 ;; esac
done
exec $(command -v pkg-config) "\$@"
END
chmod +x "$tmp/own/pkg-config"
modules_of() { scripts/deps.sh list | sed -n "s/^\($1\) .*module:\([^ ]*\).*/\2/p" | tr -d .- | tr ',\n' '  '; }
configures() { # PRESET HIDDEN
  rm -rf "$tmp/build"
  PKG_CONFIG="$tmp/own/pkg-config" HIDDEN="$2" timeout 120 \
    cmake --preset "$1" -B "$tmp/build" >"$tmp/out" 2>&1
}
preset=$(sed -n '/^scripts\/deps.sh run$/,/^```$/s/^make build PRESET=//p' README.md)
configures "$preset" "$(modules_of 'test\|packages')" || { cat "$tmp/out" && exit 1; }
echo "ok: what it takes to build $preset"
configures packages "$(modules_of test)" || { cat "$tmp/out" && exit 1; }
echo "ok: what it takes to make packages"
if configures packages "$(modules_of packages)"; then
  echo "what is hidden must be missed"
  exit 1
fi
