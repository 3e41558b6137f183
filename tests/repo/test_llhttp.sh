# neap takes llhttp where it is, and all about heads of requests holds with it as it does with
# http-parser: the same tests, built with it.  Debian has llhttp's C as a part of node-llhttp;
# installed or not, a library is made of it here.
set -eu
out="$NEAP_BUILD/llhttp"
prefix="$out/prefix"
mkdir -p "$out" "$prefix/include" "$prefix/lib"

share=/usr/share
if [ ! -f "$share/llhttp/llhttp.c" ]; then
  share="$out/package/usr/share"
  if [ ! -f "$share/llhttp/llhttp.c" ] &&
    ! (cd "$out" && apt-get download node-llhttp && dpkg -x node-llhttp_*.deb package); then
    echo "no llhttp here, and Debian's node-llhttp can't be fetched" >&2
    exit 1
  fi
fi

cp "$share/include/llhttp/llhttp.h" "$prefix/include/"
for part in api http llhttp; do
  "$CC" -O1 -g -fPIC -I"$prefix/include" -c "$share/llhttp/$part.c" -o "$out/$part.o"
done
ar rcs "$prefix/lib/libllhttp.a" "$out/api.o" "$out/http.o" "$out/llhttp.o"

cmake --preset dev -B "$out/build" -DCMAKE_PREFIX_PATH="$prefix" >"$out/configure.log"
grep "HTTP parser: $prefix/lib/libllhttp.a" "$out/configure.log"

targets="test_hosts_http_server test_hosts_http_proxy test_hosts_http_walk"
# shellcheck disable=SC2086  # a list of words
if ! cmake --build "$out/build" --parallel 2 --target $targets >"$out/build.log" 2>&1; then
  tail -30 "$out/build.log"
  exit 1
fi
nm "$out/build/tests/hosts/test_hosts_http_server" >"$out/symbols"
grep -q llhttp_execute "$out/symbols"
if grep -q http_parser_execute "$out/symbols"; then exit 1; fi
ctest --test-dir "$out/build" -R '^hosts\.http_(server|proxy|walk)$' --no-tests=error --stop-on-failure --timeout 60 \
  --output-on-failure
