# Removes what was last installed from the build tree BUILD, and the directories made for it:
#
#   cmake -DBUILD=build/install -P NeapUninstall.cmake
file(GLOB manifests "${BUILD}/install_manifest*.txt")
set(record "${BUILD}/install_record.cmake") # NeapInstall.cmake writes it
if(NOT manifests)
  message(FATAL_ERROR "nothing was installed from ${BUILD}: it has no install_manifest.txt")
endif()
include("${record}")

set(directories "")
foreach(manifest IN LISTS manifests)
  file(STRINGS "${manifest}" files)
  foreach(file IN LISTS files)
    file(REMOVE "${destdir}${file}")
    get_filename_component(directory "${file}" DIRECTORY)
    list(APPEND directories "${directory}")
  endforeach()
endforeach()
list(REMOVE_DUPLICATES directories)

# is_ours(DIRECTORY OUT): it was made for what was installed, or is in one that was
function(is_ours directory out)
  set(${out} FALSE PARENT_SCOPE)
  foreach(path IN LISTS made)
    string(FIND "${directory}/" "${path}/" at)
    if(at EQUAL 0)
      set(${out} TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# From each directory up, until one isn't ours or has something in it: of somebody else, or what is
# in the list and comes later.
foreach(directory IN LISTS directories)
  is_ours("${directory}" ours)
  while(ours)
    execute_process(COMMAND rmdir "${destdir}${directory}" OUTPUT_QUIET ERROR_QUIET)
    if(EXISTS "${destdir}${directory}")
      break()
    endif()
    get_filename_component(directory "${directory}" DIRECTORY)
    is_ours("${directory}" ours)
  endwhile()
endforeach()
file(REMOVE "${record}" ${manifests})
