# A real OpenFeature application through neap to a real flag provider: see ofrep/outage.js.
. "$(dirname "$0")/support.sh"

modules=build/npm/ofrep/node_modules
[ -d "$modules" ] || fail "$modules is not there: run scripts/deps.sh test"
NODE_PATH=$modules node tests/hosts/ofrep/outage.js "${NEAP_BIN:?}" policies/ofrep.lua "$dir"
