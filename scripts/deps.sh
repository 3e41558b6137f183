#!/bin/sh
# What neap needs, in one place; and installs what is missing.
#
#   scripts/deps.sh run        what it takes to build and run
#   scripts/deps.sh packages   ... and to make Debian packages
#   scripts/deps.sh test       ... and to test
#   scripts/deps.sh bench      ... and to measure
#   scripts/deps.sh list       prints the table
#
# A line is: who needs it, how to see that it is there, its Debian package, what for.
set -eu
cd "$(dirname "$0")/.."

table() {
  cat <<'EOF'
run      command:cc               gcc                   C compiler
run      command:make             make                  build
run      command:cmake            cmake                 build
run      command:pkg-config       pkg-config            build
run      command:lua5.4           lua5.4                Lua 5.4
run      module:lua5.4,lua-5.4    liblua5.4-dev         Lua 5.4, headers
run      module:libuv             libuv1-dev            event loop
run      module:lua5.4-luv,luv    lua-luv-dev           libuv in Lua, headers
run      lua:luv                  lua-luv               libuv in Lua
run      lua:cjson                lua-cjson             JSON
run      module:zlib              zlib1g-dev            compressed logs
run      module:libcurl           libcurl4-openssl-dev  HTTP client
run      header:http_parser.h,llhttp.h libhttp-parser-dev    HTTP server
run      command:curl             curl                  to try it
packages module:lua5.3,lua-5.3    liblua5.3-dev         Lua 5.3, headers
packages module:lua5.1,lua-5.1    liblua5.1-0-dev       Lua 5.1, headers
packages command:dpkg-shlibdeps   dpkg-dev              which packages they need
packages command:file             file                  which files are libraries
test     command:clang            clang                 the other compiler
test     clang:-fsanitize=fuzzer  libclang-rt-dev       fuzzing
test     command:clang-format     clang-format          format check
test     command:g++              g++                   the header as C++
test     cc:-m32                  gcc-multilib          32-bit build
test     module:cmocka            libcmocka-dev         C tests
test     lua:busted               lua-busted            Lua tests
test     command:luacheck         lua-check             Lua lint
test     command:lua5.3           lua5.3                Lua 5.3
test     command:lua5.1           lua5.1                Lua 5.1
test     command:luajit           luajit2               LuaJIT
test     module:luajit            libluajit2-5.1-dev    LuaJIT, headers
test     lua:cqueues              lua-cqueues           a scheduler
test     lua5.1:copas             lua-copas             another
test     lua5.1:http.request      lua-http              HTTP in Lua
test     command:luarocks         luarocks              the rock
test     command:mandoc           mandoc                lint of the manual page
test     command:fakeroot         fakeroot              the Debian packages, for who is not root
test     command:promtool         prometheus            metrics format check, alert rules
test     command:prometheus       prometheus            the alert rules in an outage
test     command:spin             spin                  model check
test     command:openssl          openssl               certificates for the TLS tests
test     command:nginx            nginx-light           an upstream that speaks HTTP/2
test     command:haproxy          haproxy               neap in HAProxy
test     nginx:ngx_http_lua_module libnginx-mod-http-lua Lua in nginx, with LuaJIT
test     command:pgrep            procps                processes that tests start
test     command:node             nodejs                an OpenFeature client and provider
test     command:npm              npm                   the same
test     npm:tests/hosts/ofrep    -                     the same, into build/npm
test     command:chromium         chromium              the admin page in a browser
test     npm:tests/hosts/page     -                     what tells it what to do, into build/npm
test     command:tmux             tmux                  neap top in a terminal
bench    command:valgrind         valgrind              instruction counts
bench    command:wrk              wrk                   load
EOF
}

# Where the npm packages go that the package.json in that directory names.
npm_directory() { echo "build/npm/${1##*/}"; }

npm_install() {
  to=$(npm_directory "$1")
  mkdir -p "$to"
  rm -rf "$to/node_modules"
  cp "$1/package.json" "$1/package-lock.json" "$to/"
  (cd "$to" && npm ci --ignore-scripts --no-audit --no-fund --silent)
}

is_there() {
  name=${1#*:}
  case $1 in
    npm:*) [ -e "$(npm_directory "$name")/node_modules/.package-lock.json" ] &&
      cmp -s "$name/package-lock.json" "$(npm_directory "$name")/package-lock.json" ;;
    command:*) (PATH="$PATH:/usr/sbin" && command -v "$name") >/dev/null 2>&1 ;;
    module:*)
      for module in $(echo "$name" | tr , ' '); do
        pkg-config --exists "$module" 2>/dev/null && return 0
      done
      return 1 ;;
    nginx:*) [ -e "$(PATH="$PATH:/usr/sbin" nginx -V 2>&1 | tr ' ' '\n' |
      sed -n 's/^--modules-path=//p')/$name.so" ] ;;
    lua:*) lua5.4 -e "require '$name'" >/dev/null 2>&1 ;;
    lua5.1:*) lua5.1 -e "require '$name'" >/dev/null 2>&1 ;;
    header:*)
      for header in $(echo "$name" | tr , ' '); do
        echo "#include <$header>" | cc -E -xc - >/dev/null 2>&1 && return 0
      done
      return 1 ;;
    cc:*) echo "#include <stdint.h>
int main(void) { return 0; }" | cc "$name" -xc - -o /dev/null 2>/dev/null ;;
    clang:*) echo "int LLVMFuzzerTestOneInput(void) { return 0; }" |
      clang "$name" -xc - -o /dev/null 2>/dev/null ;;
  esac
}

# Lines of the table that are wanted and not there.
missing() {
  table | while read -r who check package what; do
    case " $wanted " in *" $who "*) ;; *) continue ;; esac
    is_there "$check" || echo "$check $package $what"
  done
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

case ${1:-run} in
  run) wanted="run" ;;
  packages) wanted="run packages" ;;
  test) wanted="run packages test" ;;
  bench) wanted="run packages test bench" ;;
  list) table; exit ;;
  *) echo "deps.sh: $1: must be run, packages, test, bench or list" >&2; exit 2 ;;
esac

absent=$(missing)
[ -z "$absent" ] && exit 0

packages=$(echo "$absent" | awk '$2 != "-" { print $2 }' | sort -u | tr '\n' ' ')
if [ -n "$packages" ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing: $packages"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  # shellcheck disable=SC2086  # a list of words
  if ! { as_root apt-get update && as_root apt-get install -y --no-install-recommends $packages; } \
    >"$log" 2>&1; then
    tail -5 "$log" >&2
    echo "could not be installed with apt-get; as root try: apt-get install $packages" >&2
  fi
  rm -f "$log"
fi

for check in $(echo "$absent" | awk '$1 ~ /^npm:/ { print $1 }'); do
  if command -v npm >/dev/null 2>&1; then
    echo "installing: npm packages of ${check#npm:}"
    npm_install "${check#npm:}" || echo "npm ci failed in $(npm_directory "${check#npm:}")" >&2
  fi
done

absent=$(missing)
[ -z "$absent" ] && exit 0
echo "neap needs these, which are not here:" >&2
echo "$absent" | while read -r check package what; do
  case $check in
    npm:*) from="npm ci in $(npm_directory "${check#npm:}")" ;;
    *) from="on Debian: $package" ;;
  esac
  printf '  %-24s %s (%s)\n' "$check" "$what" "$from" >&2
done
exit 1
