/* files.h: what io cannot do: list and read, for programs that watch files (files.c); files that
 * outlive the program (durable.c). */
#ifndef NEAP_FILES_H
#define NEAP_FILES_H

#include "lua.h"

/* Adds list and read to the module table on top of the stack. */
void neap__open_files(lua_State *L);

/* Adds open_file, replace_file, check_directory and wall_ms. */
void neap__open_durable(lua_State *L);

#endif
