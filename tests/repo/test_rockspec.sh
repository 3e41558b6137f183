# `luarocks make` for each Lua there is, without a network: the rock has what it should and no more,
# works by itself, and goes without a trace.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
die() {
  echo "not so: $*"
  [ ! -e "$tmp/log" ] || cat "$tmp/log"
  exit 1
}
unset LUA_PATH LUA_CPATH LUA_INIT
export HOME="$tmp" # a luarocks without settings of its own

# A checkout: what is built is built there.
mkdir "$tmp/neap" "$tmp/no-server"
cp -r core lua policies docs examples README.md LICENSE neap-scm-1.rockspec "$tmp/neap"
cd "$tmp/neap"
luarocks lint neap-scm-1.rockspec

# rocks VERSION COMMAND...: luarocks for that Lua, with a tree of its own and nowhere to fetch from
rocks() {
  version=$1
  shift
  luarocks --only-server "$tmp/no-server" --lua-version "$version" --tree "$tree" "$@" >"$tmp/log" 2>&1
}

# use VERSION INTERPRETER [VARIABLE=VALUE...]
use() {
  version=$1 lua=$2
  shift 2
  tree="$tmp/$lua"
  rocks "$version" make neap-scm-1.rockspec CFLAGS="-fPIC" "$@" || die "$lua: luarocks make"
  ! grep -qi 'warning' "$tmp/log" || die "$lua: builds in silence"

  # The modules, and no other file beside them.
  (cd lua && find neap -type f | sort) >"$tmp/expected"
  (cd "$tree/share/lua/$version" && find . -type f | sed 's/^..//' | sort) | cmp - "$tmp/expected" ||
    die "$lua: lua/neap is what is installed"
  [ "$(cd "$tree/lib/lua/$version" && find . -type f)" = ./neap/core.so ] || die "$lua: one C module"
  symbols=$(nm -D --defined-only "$tree/lib/lua/$version/neap/core.so" | sed 's/.* //')
  [ "$symbols" = luaopen_neap_core ] || die "$lua: it exports luaopen_neap_core, not: $symbols"

  # The first example, with a stock policy: the rock's own, and nothing else's.
  cd "$tree/lib/luarocks/rocks-$version/neap/scm-1"
  sed -n '/^--\[\[ prints$/,/^]]$/p' examples/01_hello.lua | sed '1d;$d' >"$tmp/expected"
  [ -s "$tmp/expected" ] || die "the example says what it prints"
  modules="$tree/share/lua/$version"
  LUA_PATH="$modules/?.lua;$modules/?/init.lua" LUA_CPATH="$tree/lib/lua/$version/?.so" \
    "$lua" examples/01_hello.lua >"$tmp/log" 2>&1 || die "$lua: the example runs"
  cmp "$tmp/expected" "$tmp/log" || die "$lua: the example prints what it says"
  cd "$tmp/neap"

  rocks "$version" remove neap || die "$lua: luarocks remove"
  left=$(find "$tree" -type f ! -path "*/rocks-$version/manifest*" ! -name index.html)
  [ -z "$left" ] || die "$lua: nothing is left, but: $left"
  echo "ok: $lua"
}

use 5.4 lua5.4
use 5.3 lua5.3
use 5.1 lua5.1
use 5.1 luajit LUA_INCDIR=/usr/include/luajit-2.1

# Lua 5.2 is told that it won't do, before a compiler is.
tree="$tmp/lua5.2"
mkdir "$tmp/include"
echo "#define LUA_VERSION_NUM 502" >"$tmp/include/lua.h"
if rocks 5.2 make neap-scm-1.rockspec LUA_INCDIR="$tmp/include"; then die "no Lua 5.2"; fi
grep -q 'lua >= 5.1, ~= 5.2, < 5.5' "$tmp/log" || die "Lua 5.2 is told why"
! grep -q core.so "$tmp/log" || die "Lua 5.2: nothing is compiled"
echo "ok: Lua 5.2 is refused"
