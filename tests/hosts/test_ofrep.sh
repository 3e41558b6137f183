# A real OpenFeature application through neap to a real flag provider: see ofrep/outage.js.
set -eu
modules=build/npm/ofrep/node_modules
[ -d "$modules" ] || { echo "test_ofrep: $modules is not there: run scripts/deps.sh test" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
NODE_PATH=$modules node tests/hosts/ofrep/outage.js "${NEAP_BIN:?}" policies/ofrep.lua "$dir"
