--- busted on the interpreter that runs this file: /usr/bin/busted would pick its own.
require "busted.runner" { standalone = false }
