# The public headers stand alone in every language they promise: C11, C17, C++11, C++20; gcc and clang.
set -eu
flags="-Wall -Wextra -Wpedantic -Werror -Icore/include -Ilua/engine/include"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

for header in neap/neap.h neap/panel_shared.h neap/engine.h; do
  [ -e "core/include/$header" ] || [ -e "lua/engine/include/$header" ] || continue
  echo "#include <$header>" >"$tmp/one.c"
  cp "$tmp/one.c" "$tmp/one.cpp"
  for std in c11 c17; do
    gcc $flags -Wstrict-prototypes -std=$std -D_GNU_SOURCE -fsyntax-only "$tmp/one.c"
    clang $flags -Wstrict-prototypes -std=$std -D_GNU_SOURCE -fsyntax-only "$tmp/one.c"
  done
  for std in c++11 c++20; do
    g++ $flags -std=$std -fsyntax-only "$tmp/one.cpp"
    clang++ $flags -std=$std -fsyntax-only "$tmp/one.cpp"
  done
  echo "ok: $header"
done

# And a C++ program that uses the library.
g++ $flags -std=c++11 -xc++ tests/repo/smoke.c -xnone "$NEAP_BUILD/core/libneap.a" -o "$tmp/smoke"
"$tmp/smoke"
