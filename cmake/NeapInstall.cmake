# What `cmake --install` puts where.  Paths in the package files are relative to themselves: the
# tree may be moved.  A component is a Debian package (NeapPackages.cmake):
#
#   lib  engine              the shared libraries; libneap-engine with what it needs is apart
#   dev  engine_dev          headers, CMake and pkg-config files, static libraries
#   lua                      the modules, for each version of Lua
#   program                  the neap command, its manual page, policies, texts and examples
include(CMakePackageConfigHelpers)

set(NEAP_INSTALL_SHARE_LUA share/lua CACHE STRING "Where require finds 5.4/neap/*.lua and so on, below the prefix")
set(lua_cdir lib/lua)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr") # the system's Lua looks where its libraries are
  set(lua_cdir "${CMAKE_INSTALL_LIBDIR}/lua")
endif()
set(NEAP_INSTALL_LIB_LUA ${lua_cdir} CACHE STRING "Where require finds 5.4/neap/core.so and so on, below the prefix")
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/neap")
set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
set(data_dir "${CMAKE_INSTALL_DATADIR}/neap")
set(man_dir "${CMAKE_INSTALL_MANDIR}/man1")

# The versions of Lua that there is a module for.
set(lua_versions "")
if(TARGET neap_lua)
  set(lua_versions 5.4)
  set(lua_module_5.4 neap_lua)
  foreach(version 5.3 5.1)
    if(TARGET neap_lua${version})
      list(APPEND lua_versions ${version})
      set(lua_module_${version} neap_lua${version})
    endif()
  endforeach()
endif()

# Before anything else, for NeapUninstall.cmake: where it goes, and which directories will be made.
# Those named neap are ours whoever made them.
set(destinations
  "${CMAKE_INSTALL_BINDIR}" "${CMAKE_INSTALL_LIBDIR}" "${CMAKE_INSTALL_INCLUDEDIR}/neap" "${CMAKE_INSTALL_DOCDIR}"
  "${package_dir}" "${pc_dir}" "${data_dir}" "${man_dir}"
)
foreach(version IN LISTS lua_versions)
  list(APPEND destinations "${NEAP_INSTALL_SHARE_LUA}/${version}/neap" "${NEAP_INSTALL_LIB_LUA}/${version}/neap")
endforeach()
install(CODE "
  get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
  set(record \"${PROJECT_BINARY_DIR}/install_record.cmake\")
  file(APPEND \"\${record}\" \"set(destdir [[\$ENV{DESTDIR}]])\\n\")
  foreach(directory IN ITEMS ${destinations})
    get_filename_component(path \"\${directory}\" ABSOLUTE BASE_DIR \"\${CMAKE_INSTALL_PREFIX}\")
    while((NOT EXISTS \"\$ENV{DESTDIR}\${path}\" OR path MATCHES \"/neap$\") AND NOT path MATCHES \"^/?$\")
      file(APPEND \"\${record}\" \"list(APPEND made [[\${path}]])\\n\")
      get_filename_component(path \"\${path}\" DIRECTORY)
    endwhile()
  endforeach()" ALL_COMPONENTS
)

# install_library(EXPORT COMPONENT TARGETS...)
function(install_library export component)
  install(TARGETS ${ARGN} EXPORT ${export}
    RUNTIME COMPONENT ${component}
    LIBRARY COMPONENT ${component} NAMELINK_COMPONENT ${dev_of_${component}}
    ARCHIVE COMPONENT ${dev_of_${component}}
  )
  install(EXPORT ${export} NAMESPACE neap:: FILE ${export}-targets.cmake
    DESTINATION "${package_dir}" COMPONENT ${dev_of_${component}}
  )
endfunction()
set(dev_of_lib dev)
set(dev_of_engine engine_dev)

install(DIRECTORY core/include/neap DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev)
install_library(neap lib neap neap_shared)

if(TARGET neap_engine)
  install(DIRECTORY lua/engine/include/neap DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT engine_dev)
  install_library(neap-engine engine neap_engine)
endif()

foreach(version IN LISTS lua_versions)
  install(TARGETS ${lua_module_${version}}
    LIBRARY DESTINATION "${NEAP_INSTALL_LIB_LUA}/${version}/neap" COMPONENT lua
  )
  install(DIRECTORY lua/neap
    DESTINATION "${NEAP_INSTALL_SHARE_LUA}/${version}" COMPONENT lua FILES_MATCHING PATTERN "*.lua"
  )
endforeach()

if(TARGET neap_program)
  install(TARGETS neap_program COMPONENT program)
  if(NOT NEAP_PACKAGES) # which packs it
    install(FILES docs/neap.1 DESTINATION "${man_dir}" COMPONENT program)
  endif()
endif()

install(DIRECTORY policies DESTINATION "${data_dir}" COMPONENT program FILES_MATCHING PATTERN "*.lua")
install(DIRECTORY ops DESTINATION "${data_dir}" COMPONENT program)
install(FILES LICENSE CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT program)
install(DIRECTORY examples
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT program REGEX "examples/CMakeLists.txt$" EXCLUDE
)

# The texts link to files where these are in the source tree; installed, headers, policies and ops are elsewhere.
file(RELATIVE_PATH to_headers "/${CMAKE_INSTALL_DOCDIR}" "/${CMAKE_INSTALL_INCLUDEDIR}")
file(RELATIVE_PATH to_data "/${CMAKE_INSTALL_DOCDIR}" "/${data_dir}")
file(GLOB texts CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" README.md docs/*.md)
foreach(text IN LISTS texts)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${text}")
  file(READ "${text}" content)
  string(REGEX REPLACE "\\]\\(((\\.\\./)*)(core|lua/engine)/include/" "](\\1${to_headers}/" content "${content}")
  string(REGEX REPLACE "\\]\\(((\\.\\./)*)(policies|ops)/" "](\\1${to_data}/\\3/" content "${content}")
  file(WRITE "${PROJECT_BINARY_DIR}/installed/${text}" "${content}")
endforeach()
install(DIRECTORY "${PROJECT_BINARY_DIR}/installed/" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT program)
install(FILES docs/page.png DESTINATION "${CMAKE_INSTALL_DOCDIR}/docs" COMPONENT program)

configure_package_config_file(cmake/neap-config.cmake.in neap-config.cmake INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(neap-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/neap-config.cmake"
  "${PROJECT_BINARY_DIR}/neap-config-version.cmake"
  DESTINATION "${package_dir}" COMPONENT dev
)

# A static libneap-engine needs luv named by whoever links it, a shared one names it itself.
set(pc_luv_field "Requires.private")
if(NOT BUILD_SHARED_LIBS)
  set(pc_luv_field "Requires")
endif()
file(RELATIVE_PATH pc_to_prefix "/${pc_dir}" "/")
function(install_pc name component)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION "${pc_dir}" COMPONENT ${component})
endfunction()
install_pc(neap dev)
install_pc(neap-shared dev)
if(TARGET neap_engine)
  install_pc(neap-engine engine_dev)
endif()

if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall
    COMMAND ${CMAKE_COMMAND} "-DBUILD=${PROJECT_BINARY_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/NeapUninstall.cmake"
  )
endif()
