rockspec_format = "3.0"
package = "neap"
version = "scm-1"
source = { url = "git+https://example.invalid/neap.git" }
description = {
  summary = "Circuit breaker engine: C11 core, Lua policies",
  license = "MIT",
}
dependencies = { "lua >= 5.4, < 5.5" }
build = {
  type = "builtin",
  modules = {
  },
}
