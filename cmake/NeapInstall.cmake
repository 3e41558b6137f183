# What `cmake --install` puts where.  Paths in the package files are relative to themselves: the tree may be moved.
include(CMakePackageConfigHelpers)

set(NEAP_INSTALL_LUADIR share/lua/5.4 CACHE STRING "Where require finds neap/*.lua, below the prefix")
set(NEAP_INSTALL_LUACDIR lib/lua/5.4 CACHE STRING "Where require finds neap/core.so, below the prefix")
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/neap")

install(DIRECTORY core/include/neap DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS neap neap_shared EXPORT neap)
install(EXPORT neap NAMESPACE neap:: FILE neap-targets.cmake DESTINATION "${package_dir}")
set(pc_files neap neap-shared)

if(TARGET neap_lua)
  install(TARGETS neap_lua LIBRARY DESTINATION "${NEAP_INSTALL_LUACDIR}/neap")
  install(DIRECTORY lua/neap DESTINATION "${NEAP_INSTALL_LUADIR}" FILES_MATCHING PATTERN "*.lua")
endif()

if(TARGET neap_engine)
  install(DIRECTORY lua/engine/include/neap DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(TARGETS neap_engine EXPORT neap-engine)
  install(EXPORT neap-engine NAMESPACE neap:: FILE neap-engine-targets.cmake DESTINATION "${package_dir}")
  list(APPEND pc_files neap-engine)
endif()

if(TARGET neap_program)
  file(RELATIVE_PATH to_lib "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(neap_program PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
  install(TARGETS neap_program)
endif()

install(DIRECTORY policies DESTINATION "${CMAKE_INSTALL_DATADIR}/neap" FILES_MATCHING PATTERN "*.lua")
install(FILES LICENSE CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY examples DESTINATION "${CMAKE_INSTALL_DOCDIR}" REGEX "examples/CMakeLists.txt$" EXCLUDE)

# The texts link to files where these are in the source tree; installed, headers and policies are elsewhere.
file(RELATIVE_PATH to_headers "/${CMAKE_INSTALL_DOCDIR}" "/${CMAKE_INSTALL_INCLUDEDIR}")
file(RELATIVE_PATH to_data "/${CMAKE_INSTALL_DOCDIR}" "/${CMAKE_INSTALL_DATADIR}/neap")
file(GLOB texts CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" README.md docs/*.md)
foreach(text IN LISTS texts)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${text}")
  file(READ "${text}" content)
  string(REGEX REPLACE "\\]\\(((\\.\\./)*)(core|lua/engine)/include/" "](\\1${to_headers}/" content "${content}")
  string(REGEX REPLACE "\\]\\(((\\.\\./)*)policies/" "](\\1${to_data}/policies/" content "${content}")
  file(WRITE "${PROJECT_BINARY_DIR}/installed/${text}" "${content}")
endforeach()
install(DIRECTORY "${PROJECT_BINARY_DIR}/installed/" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

configure_package_config_file(cmake/neap-config.cmake.in neap-config.cmake INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(neap-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/neap-config.cmake"
  "${PROJECT_BINARY_DIR}/neap-config-version.cmake"
  DESTINATION "${package_dir}"
)

# A static libneap-engine needs luv named by whoever links it, a shared one names it itself.
set(pc_luv_field "Requires.private")
if(NOT BUILD_SHARED_LIBS)
  set(pc_luv_field "Requires")
endif()
file(RELATIVE_PATH pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
foreach(name IN LISTS pc_files)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
