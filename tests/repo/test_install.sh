# `cmake --install`: the tree is moved, then used by a CMake project, by pkg-config, by every Lua
# and as a program; and what was installed can be removed.  Shared libraries: test_packages.sh.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
version=$(sed -n 's/^#define NEAP_VERSION "\(.*\)"/\1/p' core/include/neap/neap.h)
. tests/repo/installed.sh

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

cmake --install "$NEAP_BUILD" --prefix "$tmp/first" >/dev/null
mv "$tmp/first" "$tmp/static"
use_tree "$tmp/static" static
refuses_component "$tmp/static"

# Removed again: nothing is left where there was nothing, and nothing is missing where there was
# something.
uninstall() { cmake --build "$NEAP_BUILD" --target uninstall >"$tmp/log" 2>&1; }
install_to() { DESTDIR="$1" cmake --install "$NEAP_BUILD" --prefix "$2" >/dev/null; }

mkdir "$tmp/stage"
install_to "$tmp/stage" /opt/neap
[ -x "$tmp/stage/opt/neap/bin/neap" ] || die "DESTDIR is where it goes"
uninstall
[ -z "$(ls "$tmp/stage")" ] || die "nothing is left: $(find "$tmp/stage")"
if uninstall; then die "there is nothing to remove any more"; fi
grep -q 'nothing was installed from' "$tmp/log" || die "it says so: $(cat "$tmp/log")"

used="$tmp/used"
mkdir -p "$used/bin" "$used/include" "$used/share/lua/5.4/neap"
touch "$used/bin/other" "$used/share/lua/5.4/neap/other.lua"
find "$used" | sort >"$tmp/before"
install_to "" "$used"
install_to "" "$used" # an upgrade
uninstall
find "$used" | sort | diff "$tmp/before" - || die "what was there before is there, and no more"
say "uninstall"

# make hands on where to; a cmake that only talks shows it.
mkdir "$tmp/bin"
printf '#!/bin/sh\necho "DESTDIR=$DESTDIR $*" >>"%s"\numask >"%s"\n' "$tmp/asked" "$tmp/umask" >"$tmp/bin/cmake"
chmod +x "$tmp/bin/cmake"
(umask 077 && PATH="$tmp/bin:$PATH" make install DESTDIR=/stage PREFIX=/opt >/dev/null)
asked() { grep -qxF -- "$1" "$tmp/asked" || die "$1, but: $(cat "$tmp/asked")"; }
asked "DESTDIR=/stage --install build/install --prefix /opt"
[ "$(cat "$tmp/umask")" = 0022 ] || die "everybody can use what root installs: $(cat "$tmp/umask")"
PATH="$tmp/bin:$PATH" make uninstall >/dev/null
asked "DESTDIR= -DBUILD=build/install -P cmake/NeapUninstall.cmake"
say "make install, make uninstall"

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
