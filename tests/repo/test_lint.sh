# Layout and lint: luacheck, clang-format, shellcheck where there is one.
set -eu
luacheck -q .
find . -path ./build -prune -o -name '*.[ch]' -print | xargs clang-format --dry-run -Werror
if command -v shellcheck >/dev/null 2>&1; then
  shellcheck -s sh -S warning scripts/*.sh .ci/run
fi
