rockspec_format = "3.0"
package = "neap"
version = "scm-1"
-- For `luarocks make` in a checkout.
source = { url = "." }
description = {
  summary = "Circuit breaker engine: C11 core, Lua policies",
  detailed = [[
    May this call be made? A small C core keeps the window, the state machine and the clock; Lua
    policy files say what counts as a failure, who answers instead, and what it takes to trust the
    dependency again. They are edited while the program runs.]],
  license = "MIT",
}
dependencies = { "lua >= 5.1, ~= 5.2, < 5.5" }

-- By hand, not as "builtin": that takes all of a directory named lua for modules, and so installs
-- this project's C sources and its engine among them.
local compile = "$(CC) $(CFLAGS) $(LIBFLAG) -std=c11 -D_GNU_SOURCE= -fvisibility=hidden"
  .. " -Icore/include -Icore/src -Ilua/src -I$(LUA_INCDIR) -o core.so core/src/*.c lua/src/*.c -lm"
build = {
  type = "command",
  build_command = compile,
  install_command = "mkdir -p $(LIBDIR)/neap && mv core.so $(LIBDIR)/neap/"
    .. " && mkdir -p $(LUADIR) && cp -r lua/neap $(LUADIR)/",
  copy_directories = { "policies", "docs", "examples" },
  platforms = { linux = { build_command = compile .. " -Wl,--version-script=lua/core.map" } },
}
