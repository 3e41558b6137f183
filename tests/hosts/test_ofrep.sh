# A real OpenFeature application through neap to a real flag provider: see ofrep/outage.js, and, for
# how long it waits, ofrep/bound.js.
. "$(dirname "$0")/support.sh"

modules=build/npm/ofrep/node_modules
[ -d "$modules" ] || fail "$modules is not there: run scripts/deps.sh test"
export NODE_PATH=$modules
mkdir "$dir/story" "$dir/bound"
node tests/hosts/ofrep/outage.js "${NEAP_BIN:?}" policies/ofrep.lua "$dir/story"
node tests/hosts/ofrep/bound.js "$NEAP_BIN" policies/ofrep.lua "$dir/bound" 1
