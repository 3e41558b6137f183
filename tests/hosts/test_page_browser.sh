# The page in a real browser: see page/page.js.
. "$(dirname "$0")/support.sh"

modules=build/npm/page/node_modules
[ -d "$modules" ] || fail "$modules is not there: run scripts/deps.sh test"
export NODE_PATH=$modules
# shellcheck disable=SC2046  # a list of numbers
node tests/hosts/page/page.js "${NEAP_BIN:?}" examples/demo/upstream.lua "$dir" $(free_ports 3)
