/* files.h: list and read, for programs that watch files. */
#ifndef NEAP_FILES_H
#define NEAP_FILES_H

#include "lua.h"

/* Adds list and read to the module table on top of the stack. */
void neap__open_files(lua_State *L);

#endif
