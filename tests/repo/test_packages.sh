# The Debian packages: made, looked at, installed below a root of their own and used there; removed,
# they leave nothing.
set -eu
# dpkg gives files to root.
[ "$(id -u)" -eq 0 ] || [ -n "${FAKEROOTKEY:-}" ] || exec fakeroot sh "$0"
tmp=$(mktemp -d)
server=""
trap '[ -z "$server" ] || kill $server 2>/dev/null; rm -rf "$tmp"' EXIT
umask 022
version=$(sed -n 's/^#define NEAP_VERSION "\(.*\)"/\1/p' core/include/neap/neap.h)
debian=$(echo "$version" | tr - '~')
abi=$(sed -n 's/^#define NEAP_ABI \(.*\)/\1/p' core/include/neap/neap.h)
. tests/repo/installed.sh

# As `make packages` does, but for the compiler's time.  Without a maintainer, they are this machine's.
unset DEBFULLNAME DEBEMAIL
configure() { cmake --preset packages -B "$@" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS= >/dev/null; }
says() { grep -qxF "set(CPACK_PACKAGE_$1 \"$2\")" "$tmp/build/CPackConfig.cmake" || die "$1: not $2"; }
mkdir "$tmp/candidate"
cp -r CMake* core lua cmake docs policies examples README.md CHANGELOG.md LICENSE "$tmp/candidate"
sed -i 's/^#define NEAP_VERSION ".*/#define NEAP_VERSION "9.8.0-rc1"/' "$tmp/candidate/core/include/neap/neap.h"
(cd "$tmp/candidate" && configure "$tmp/build")
says VERSION "9.8.0~rc1"
grep -q '^Version: 9.8.0$' "$tmp/build/neap.pc" || die "pkg-config and CMake compare numbers"
rm -rf "$tmp/build" "$tmp/candidate"
say "a release candidate comes before its release"
configure "$tmp/build"
says CONTACT "local build of neap <root@localhost>"
export DEBFULLNAME="A. Packer" DEBEMAIL="packer@example.org"
configure "$tmp/build"
cmake --build "$tmp/build" --parallel 2 >/dev/null
(cd "$tmp/build" && cpack -G DEB) >"$tmp/log" 2>&1 || die "cpack: $(cat "$tmp/log")"
mkdir "$tmp/debs"
mv "$tmp"/build/*.deb "$tmp/debs"
rm -rf "$tmp/build"
cd "$tmp/debs"

names="libneap$abi libneap-dev libneap-engine$abi libneap-engine-dev lua-neap neap"
for name in $names; do
  deb=$(ls "${name}_${debian}_"*.deb) || die "there is a package $name"
  field() { dpkg-deb -f "$deb" "$1"; }
  [ "$(field Package) $(field Version)" = "$name $debian" ] || die "$deb is $(field Package)"
  [ "$(field Maintainer)" = "A. Packer <packer@example.org>" ] || die "$(field Maintainer)"
  grep -qF "\`$name\`" "$OLDPWD/docs/install.md" || die "docs/install.md tells of $name"
  # Summary and text, as `apt show` and a terminal like them.
  field Description | awk -v name="$name" '{ if (length > 80) exit 1 } END { exit NR < 3 }' ||
    die "$name: $(field Description)"
  dpkg-deb -c "$deb" >"$tmp/files"
  for file in copyright changelog.gz; do
    grep -q "/usr/share/doc/$name/$file$" "$tmp/files" || die "$name has a $file"
  done
  ! grep -v ' root/root .* \./usr/' "$tmp/files" || die "$name: all is root's, below /usr"
  ! grep -v '^-rw-r--r-- \|^[-d]rwxr-xr-x \|^l' "$tmp/files" || die "$name: everybody may read it"
  case $name in
    *-dev) what='include/neap/|lib/[^/]+/(cmake/neap|pkgconfig)/|lib/[^/]+/libneap[a-z-]*\.so ->' ;;
    lib*) what='lib/[^/]+/libneap[a-z-]*\.so\.' ;;
    lua-neap) what='lib/[^/]+/lua/5\.[134]/neap/core\.so$|share/lua/5\.[134]/neap/.*\.lua$' ;;
    neap) what='bin/neap$|share/neap/(policies|ops)/|share/man/man1/neap\.1\.gz$' ;;
  esac
  ! grep -v '/$' "$tmp/files" | grep -Ev " \./usr/($what|share/doc/$name/)" || die "$name has that"
done
[ "$(ls | wc -l)" -eq 6 ] || die "six packages: $(ls)"
needs_of() { dpkg-deb -f "$1"_* Depends | tr ',' '\n' | sed 's/^ //'; }
needs() { needs_of "$1" | grep -q "^$2" || die "$1 depends on $2"; }
needs "libneap$abi" 'libc6 (>= '
needs libneap-dev "libneap$abi (= $debian)"
needs "libneap-engine$abi" "libneap$abi (= $debian)"
needs "libneap-engine$abi" 'libuv1 '
needs libneap-engine-dev liblua5.4-dev
needs lua-neap libc6
needs neap lua-cjson
needs neap libcurl
[ "$(needs_of "libneap$abi" | wc -l)" -eq 1 ] || die "the core needs libc only"
say "$names"

root="$tmp/root"
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status"
# What they need is this machine's; its ldconfig is not for them.
mkdir "$tmp/bin"
printf '#!/bin/sh\ntouch "%s"\n' "$tmp/ldconfig-was-called" >"$tmp/bin/ldconfig"
chmod +x "$tmp/bin/ldconfig"
debian() {
  PATH="$tmp/bin:$PATH:/usr/sbin:/sbin" dpkg --root="$root" --log="$tmp/dpkg.log" --force-script-chrootless \
    --force-depends --force-not-root "$@" >"$tmp/log" 2>&1 || die "dpkg $*: $(cat "$tmp/log")"
}
debian --install ./*.deb
[ -e "$tmp/ldconfig-was-called" ] || die "libraries are made known"
cd "$OLDPWD"

libraries=$(find "$root" -name 'libneap*.so')
[ "$(echo "$libraries" | wc -l)" -eq 3 ]
for library in $libraries; do
  name=$(basename "$library" .so)
  soname=$(readelf -d "$library" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
  [ "$soname" = "$name.so.$abi" ] || die "the soname of $library: $soname"
  # neap.h, engine.h, panel_shared.h of libneap, libneap-engine, libneap-shared
  noun=$(echo "$name" | sed 's/^lib//; s/^neap-//')
  sh tests/repo/exported.sh "$root/usr/include/neap/"*"$noun.h" "$library"
  say "soname $soname"
done
for file in "$root/usr/bin/neap" $libraries; do
  ! readelf -d "$file" | grep -q 'R.*PATH' || die "no search path of its own: $file"
done
use_tree "$root/usr" packages

# The command with a policy of the package, in front of something.
# shellcheck disable=SC2046  # two words
set -- $($LUA tests/support/ports.lua 2)
answers() { # URL: once it does
  tries=0
  until curl -sfi "$1"; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || die "$1 answers: $(cat "$tmp/log")"
    sleep 0.1
  done
}
$LUA examples/demo/upstream.lua --until-term --listen "127.0.0.1:$1" >"$tmp/log" 2>&1 &
server=$!
answers "localhost:$1/flags/new-checkout" >/dev/null
"$root/usr/bin/neap" serve --listen "127.0.0.1:$2" --upstream "http://127.0.0.1:$1" --admin off \
  --policy "$root/usr/share/neap/policies/flag_provider.lua" >>"$tmp/log" 2>&1 &
server="$server $!"
answers "localhost:$2/flags/new-checkout" >"$tmp/answer"
grep -qi '^neap-source: primary' "$tmp/answer" || die "serve: $(cat "$tmp/answer" "$tmp/log")"
kill $server
server=""
say "neap serve"

debian --purge $names
rm -r "$root/var/lib/dpkg"
left=$(find "$root" ! -type d; find "$root" -name '*neap*')
[ -z "$left" ] || die "nothing is left, but: $left"
say "purged"
