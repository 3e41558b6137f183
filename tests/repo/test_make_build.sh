# `make build` is quiet: one line, and before it what the compiler says, whichever way the build tool
# passes that on; and it fails when the build does.
set -eu
unset MAKEFLAGS MAKELEVEL MFLAGS # of `make test`: a make below another says where it is
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# A cmake that only talks: as with Makefiles (the compiler's lines on stderr), or with Ninja.
mkdir "$tmp/bin"
cat >"$tmp/bin/cmake" <<'END'
#!/bin/sh
echo "-- Configuring done"
[ "$1" = --build ] || exit "$CONFIGURED"
echo "[ 50%] Building C object x.c.o"
if [ "$TALKS" = ninja ]; then echo "x.c:1:2: warning: odd"; else echo "x.c:1:2: warning: odd" >&2; fi
echo "[100%] Built target x"
exit "$STATUS"
END
chmod +x "$tmp/bin/cmake"
export TALKS STATUS CONFIGURED=0

build() { PATH="$tmp/bin:$PATH" make build PRESET=dev >"$tmp/out" 2>&1; }
die() {
  echo "not so: $*"
  cat "$tmp/out"
  exit 1
}

for TALKS in make ninja; do
  STATUS=0
  build || die "$TALKS: succeeds"
  printf 'x.c:1:2: warning: odd\nbuilt: build/dev\n' | cmp -s - "$tmp/out" || die "$TALKS: two lines"
  STATUS=2
  if build; then die "$TALKS: fails with the build"; fi
  grep -q '^x.c:1:2: warning: odd$' "$tmp/out" || die "$TALKS: says what the compiler said"
  if grep -q '^built\|^\[' "$tmp/out"; then die "$TALKS: says no more"; fi
  echo "ok: $TALKS"
done

# What configures says why it can't, and make where what is missing comes from.
CONFIGURED=1
for preset in dev:test clang:test install:run packages:packages; do
  if PATH="$tmp/bin:$PATH" make build PRESET="${preset%:*}" >"$tmp/out" 2>&1; then die "$preset: fails"; fi
  grep -q "scripts/deps.sh ${preset#*:} installs it$" "$tmp/out" || die "$preset: says what installs it"
done
CONFIGURED=0
echo "ok: can't be configured"

# On a terminal it shows how far it is, in one line that is gone in the end.
TALKS=ninja STATUS=0
PATH="$tmp/bin:$PATH" script -qec "make build PRESET=dev" /dev/null </dev/null >"$tmp/out" 2>&1 || die "terminal: succeeds"
tr '\r' '\n' <"$tmp/out" | sed 's/ *$//' | grep . >"$tmp/lines"
printf '%s\n' '[ 50%]' '[100%]' 'x.c:1:2: warning: odd' 'built: build/dev' | cmp -s - "$tmp/lines" || die "terminal: progress"
echo "ok: on a terminal"
