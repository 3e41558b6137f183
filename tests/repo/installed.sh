# For the tests of what is installed: use_tree PREFIX KIND uses all of it.  Wants $tmp and $version.
say() { echo "ok: $*"; }
die() {
  echo "not so: $*"
  exit 1
}

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
  [ "$(pkg-config --modversion neap)" = "${version%%-*}" ]
  cc -std=c11 tests/repo/smoke.c $(pkg-config --cflags --libs neap) -o "$tmp/core-$kind"
  "$tmp/core-$kind"
  cc -std=c11 tests/repo/consumer/use_shared.c $(pkg-config --cflags --libs neap-shared) \
    -o "$tmp/shared-$kind"
  "$tmp/shared-$kind"
  cc -std=gnu11 tests/repo/consumer/use_engine.c $(pkg-config --cflags --libs neap-engine) \
    -o "$tmp/engine-$kind"
  "$tmp/engine-$kind" "$prefix/share/neap/policies"
  say "$kind: pkg-config"
  unset LD_LIBRARY_PATH

  (
    cd "$tmp"
    export POLICY="$prefix/share/neap/policies/http_upstream.lua"
    for lua in lua5.4 lua5.3 lua5.1 luajit; do
      abi=${lua#lua}
      [ "$lua" != luajit ] || abi=5.1
      share="$prefix/share/lua/$abi" lib="$libdir/lua/$abi"
      LUA_PATH="$share/?.lua;$share/?/init.lua" LUA_CPATH="$lib/?.so" \
        "$lua" -e 'local guard = require("neap").guard(os.getenv("POLICY"))
          assert(guard:call(function() return 42 end) == 42)'
    done
    [ "$("$prefix/bin/neap" --version | head -1)" = "neap $version" ]
    promtool check rules "$prefix/share/neap/ops/alerts.yml" >/dev/null
    "$prefix/bin/neap" check "$prefix/share/neap/policies/http_upstream.lua" >/dev/null
  )
  say "$kind: Lua modules and the program"

  for text in $(find "$prefix/share/doc" -name '*.md'); do
    sed -n 's/](\([^)]*\))/\n](\1)\n/gp' "$text" |
      sed -n 's/^](\([^)#]*\).*)$/\1/p' | sort -u >"$tmp/links"
    while read -r link; do
      case $link in "" | http*) continue ;; esac
      [ -e "$(dirname "$text")/$link" ] || die "$text links to $link: no such file"
    done <"$tmp/links"
  done
  [ -s "$prefix/share/doc/neap/docs/operations.md" ]
  grep -q 'include/neap/neap.h)' "$prefix/share/doc/neap/README.md"
  say "$kind: the texts link to what is installed"

  mandoc -T lint $(find "$prefix/share/man" -name 'neap.1*')
  say "$kind: the manual page"
}
