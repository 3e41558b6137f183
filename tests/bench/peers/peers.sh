#!/bin/sh
# peers.sh BUILD ROUNDS: other breakers, in the same words as the other programs: NAME, tab, nanoseconds a round.
#
# Debian packages (golang-go, the go library, python3-circuitbreaker), and npm packages, pinned, into BUILD/peers.
set -eu
here=$(dirname "$0") build=$1 rounds=$2
peers=$build/peers
packages="golang-go golang-gopkg-eapache-go-resiliency.v1-dev python3-circuitbreaker"

mkdir -p "$peers"
# shellcheck disable=SC2086  # a list of words
if ! dpkg -s $packages >/dev/null 2>&1; then
  as_root=""
  [ "$(id -u)" -eq 0 ] || as_root="sudo -n"
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages \
    >"$peers/apt.log" 2>&1 || { tail -5 "$peers/apt.log" >&2; exit 1; }
fi
if [ ! -d "$peers/node_modules" ]; then
  cp "$here/package.json" "$peers/"
  (cd "$peers" && npm install --no-audit --no-fund --silent) >&2
fi
[ -x "$peers/peer" ] ||
  GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE="$(cd "$peers" && pwd)/cache" go build -o "$peers/peer" "$here/peer.go"

NODE_PATH=$peers/node_modules node "$here/peers.js" "$rounds"
"$peers/peer" "$rounds"
/usr/bin/python3 "$here/peer.py" "$rounds"
