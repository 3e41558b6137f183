# `cmake --install`, static and shared: the tree is moved, then used by a CMake project, by pkg-config, by Lua and as a
# program.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
say() { echo "ok: $*"; }

use_tree() {
  prefix=$1
  kind=$2
  libdir=$(dirname "$(find "$prefix" -name pkgconfig)")
  export LD_LIBRARY_PATH="$libdir"

  cmake -S tests/repo/consumer -B "$tmp/consumer-$kind" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
  cmake --build "$tmp/consumer-$kind" >/dev/null
  "$tmp/consumer-$kind/use_core"
  "$tmp/consumer-$kind/use_shared"
  "$tmp/consumer-$kind/use_engine" "$prefix/share/neap/policies"
  say "$kind: find_package(neap)"

  export PKG_CONFIG_PATH="$libdir/pkgconfig"
  [ "$(pkg-config --modversion neap)" = "$version" ]
  cc -std=c11 tests/repo/smoke.c $(pkg-config --cflags --libs neap) -o "$tmp/core-$kind"
  "$tmp/core-$kind"
  cc -std=c11 tests/repo/consumer/use_shared.c $(pkg-config --cflags --libs neap-shared) -o "$tmp/shared-$kind"
  "$tmp/shared-$kind"
  cc -std=gnu11 tests/repo/consumer/use_engine.c $(pkg-config --cflags --libs neap-engine) -o "$tmp/engine-$kind"
  "$tmp/engine-$kind" "$prefix/share/neap/policies"
  say "$kind: pkg-config"
  unset LD_LIBRARY_PATH

  (
    cd "$tmp"
    export POLICY="$prefix/share/neap/policies/http_upstream.lua"
    for lua in lua5.4 lua5.3 lua5.1 luajit; do
      share="$prefix/share/lua/5.${lua#lua5.}" lib="$prefix/lib/lua/5.${lua#lua5.}"
      [ "$lua" = luajit ] && share="$prefix/share/lua/5.1" lib="$prefix/lib/lua/5.1"
      LUA_PATH="$share/?.lua;$share/?/init.lua" LUA_CPATH="$lib/?.so" \
        "$lua" -e 'local guard = require("neap").guard(os.getenv("POLICY"))
          assert(guard:call(function() return 42 end) == 42)'
    done
    [ "$("$prefix/bin/neap" --version | head -1)" = "neap $version" ]
    "$prefix/bin/neap" check "$prefix/share/neap/policies/http_upstream.lua" >/dev/null
  )
  say "$kind: Lua modules and the program"

  for text in $(find "$prefix/share/doc" -name '*.md'); do
    sed -n 's/](\([^)]*\))/\n](\1)\n/gp' "$text" | sed -n 's/^](\([^)#]*\).*)$/\1/p' | sort -u >"$tmp/links"
    while read -r link; do
      case $link in "" | http*) continue ;; esac
      [ -e "$(dirname "$text")/$link" ] || { echo "not so: $text links to $link: there is no such file"; exit 1; }
    done <"$tmp/links"
  done
  [ -s "$prefix/share/doc/neap/docs/operations.md" ]
  grep -q 'include/neap/neap.h)' "$prefix/share/doc/neap/README.md"
  say "$kind: the texts link to what is installed"
}

# A component that there is not is told as that.
refuses_component() {
  mkdir -p "$tmp/typo"
  printf '%s\n' 'cmake_minimum_required(VERSION 3.18)' 'project(typo C)' \
    'find_package(neap REQUIRED COMPONENTS engine engin)' >"$tmp/typo/CMakeLists.txt"
  if cmake -S "$tmp/typo" -B "$tmp/typo/build" -DCMAKE_PREFIX_PATH="$1" >"$tmp/typo/log" 2>&1; then exit 1; fi
  grep -q 'neap has no component "engin"; the only one is engine' "$tmp/typo/log" || {
    cat "$tmp/typo/log"
    exit 1
  }
  say "a component that there is not"
}

version=$(sed -n 's/^#define NEAP_VERSION "\(.*\)"/\1/p' core/include/neap/neap.h)

cmake --install "$NEAP_BUILD" --prefix "$tmp/first" >/dev/null
mv "$tmp/first" "$tmp/static"
use_tree "$tmp/static" static
refuses_component "$tmp/static"

cmake -S . -B "$tmp/build" -DBUILD_SHARED_LIBS=ON -DNEAP_TESTS=OFF -DCMAKE_BUILD_TYPE=Debug >/dev/null
cmake --build "$tmp/build" --parallel 2 >/dev/null
cmake --install "$tmp/build" --prefix "$tmp/second" >/dev/null
rm -rf "$tmp/build"
mv "$tmp/second" "$tmp/shared"

# As a directory of somebody's project: of neap, only the core is built.
mkdir "$tmp/whole"
cat >"$tmp/whole/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.21)
project(whole C)
add_subdirectory("$PWD" neap)
add_executable(use_core "$PWD/tests/repo/smoke.c")
target_link_libraries(use_core neap::neap)
END
cmake -S "$tmp/whole" -B "$tmp/whole/build" >/dev/null
cmake --build "$tmp/whole/build" >/dev/null
"$tmp/whole/build/use_core"
[ -z "$(find "$tmp/whole/build" -name 'libneap-engine*' -o -name core.so)" ]
say "add_subdirectory"

abi=$(sed -n 's/^#define NEAP_ABI \(.*\)/\1/p' core/include/neap/neap.h)
libraries=$(find "$tmp/shared" -name 'libneap*.so')
[ "$(echo "$libraries" | wc -l)" -ge 2 ]
for library in $libraries; do
  name=$(basename "$library" .so)
  soname=$(readelf -d "$library" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
  [ "$soname" = "$name.so.$abi" ]
  say "soname $soname"
  # neap.h, engine.h, panel_shared.h of libneap, libneap-engine, libneap-shared
  noun=$(echo "$name" | sed 's/^lib//; s/^neap-//')
  sh tests/repo/exported.sh "$tmp/shared/include/neap/"*"$noun.h" "$library"
done
use_tree "$tmp/shared" shared
