# Debian packages, one for each component of NeapInstall.cmake: `make packages`.
#
#   libneap2  libneap-dev  libneap-engine2  libneap-engine-dev  lua-neap  neap
if(NOT BUILD_SHARED_LIBS OR NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  message(FATAL_ERROR "NEAP_PACKAGES needs BUILD_SHARED_LIBS=ON and CMAKE_INSTALL_PREFIX=/usr, "
    "as in the preset packages"
  )
endif()
if(NOT lua_versions STREQUAL "5.4;5.3;5.1")
  message(FATAL_ERROR "the package lua-neap needs the headers of Lua 5.4, 5.3 and 5.1: ${lua_versions}")
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME neap)
# Who makes them answers for them, and says so as to Debian's own tools; else it is the machine's.
set(CPACK_PACKAGE_CONTACT "local build of neap <root@localhost>")
if(NOT "$ENV{DEBFULLNAME}" STREQUAL "" AND NOT "$ENV{DEBEMAIL}" STREQUAL "")
  set(CPACK_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE neap)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/core")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
)
# A version that comes before another one sorts before it: 1.0-rc1 is 1.0~rc1 to Debian.
string(REPLACE "-" "~" CPACK_PACKAGE_VERSION "${neap_version}")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY >=)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each has its own
set(CPACK_COMPONENTS_ALL "")

# Each package says whose it is and what changed, in Debian's way.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(CONFIGURE OUTPUT packages/changelog @ONLY CONTENT
[[neap (@CPACK_PACKAGE_VERSION@) unstable; urgency=medium

  * What changed is in CHANGELOG.md of the package neap.

 -- @CPACK_PACKAGE_CONTACT@  @date@
]])
file(READ LICENSE license)
string(REGEX REPLACE "^[^\n]*\n\n(Copyright [^\n]*)\n\n" "" license "${license}")
string(REGEX REPLACE "^Copyright \\(c\\) " "" owner "${CMAKE_MATCH_1}")
string(REGEX REPLACE "\n\n" "\n.\n" license "${license}")
string(REGEX REPLACE "\n(.)" "\n \\1" license "${license}")
file(CONFIGURE OUTPUT packages/copyright @ONLY CONTENT
[[Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: @owner@
License: Expat
 @license@]])
file(WRITE "${PROJECT_BINARY_DIR}/packages/triggers" "activate-noawait ldconfig\n")
find_program(GZIP_PROGRAM gzip REQUIRED)
set(packed "${PROJECT_BINARY_DIR}/packages")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/neap.1")
foreach(file "${packed}/changelog" "${PROJECT_SOURCE_DIR}/docs/neap.1")
  get_filename_component(name "${file}" NAME)
  execute_process(COMMAND ${GZIP_PROGRAM} -9nc "${file}"
    OUTPUT_FILE "${packed}/${name}.gz" COMMAND_ERROR_IS_FATAL ANY
  )
endforeach()

# package(NAME COMPONENT SECTION SUMMARY DESCRIPTION [FIELD VALUE]...)
macro(package name component section summary description)
  string(TOUPPER ${component} key)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section})
  set(CPACK_COMPONENT_${key}_DESCRIPTION "${summary}\n${what}\n${description}")
  set(fields ${ARGN})
  while(fields)
    list(POP_FRONT fields field value)
    set(CPACK_DEBIAN_${key}_PACKAGE_${field} "${value}")
  endwhile()
  set(doc "${CMAKE_INSTALL_DATADIR}/doc/${name}")
  install(FILES "${packed}/copyright" "${packed}/changelog.gz"
    DESTINATION "${doc}" COMPONENT ${component}
  )
endmacro()

set(what "neap answers one question for a program that calls something that can
fail: may this call be made?")
set(same "(= ${CPACK_PACKAGE_VERSION})")

package(libneap${neap_abi} lib libs "circuit breaker engine: the core"
  "This is its core, in C: breakers in plain memory, of one process or shared
by several." SHLIBDEPS ON CONTROL_EXTRA "${packed}/triggers"
)
package(libneap-dev dev libdevel "circuit breaker engine: the core, for development"
  "These are the headers of its core, and what CMake and pkg-config need."
  DEPENDS "libneap${neap_abi} ${same}"
)

set(provided "")
foreach(version IN LISTS lua_versions)
  list(APPEND provided "lua${version}-neap")
endforeach()
list(JOIN provided ", " provided)
package(lua-neap lua interpreters "circuit breaker engine: Lua modules"
  "Policies in Lua say what counts as a failure, who answers instead, and what
it takes to trust again. For Lua 5.4, 5.3, 5.1 and LuaJIT." SHLIBDEPS ON
  PROVIDES "${provided}" SUGGESTS neap
)

if(TARGET neap_engine)
  package(libneap-engine${neap_abi} engine libs
    "circuit breaker engine: Lua policies on a libuv loop"
    "This runs policies written in Lua, on a libuv loop, behind an interface in C." SHLIBDEPS ON
    CONTROL_EXTRA "${packed}/triggers" DEPENDS "libneap${neap_abi} ${same}" SUGGESTS neap
  )
  set(headers "liblua5.4-dev, libuv1-dev, lua-luv-dev, pkg-config")
  package(libneap-engine-dev engine_dev libdevel
    "circuit breaker engine: Lua policies on a loop, for development"
    "This is the header of libneap-engine, and what CMake and pkg-config need."
    DEPENDS "libneap-engine${neap_abi} ${same}, libneap-dev ${same}, ${headers}"
  )
endif()

if(TARGET neap_program)
  install(FILES "${packed}/neap.1.gz" DESTINATION "${man_dir}" COMPONENT program)
  package(neap program net "circuit breaker in front of what a program calls"
    "This is the neap command: an HTTP proxy that stops calling what does not
answer, and a checker of policies; with the policies that come with it, the
documentation and examples." SHLIBDEPS ON
    DEPENDS lua-cjson
  )
endif()
include(CPack)
