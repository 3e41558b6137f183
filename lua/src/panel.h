/* panel.h: panels of the binding, those in memory that Lua collects and those in a file. */
#ifndef NEAP_BINDING_PANEL_H
#define NEAP_BINDING_PANEL_H

#include "binding.h"
#include "neap/panel_shared.h"

#define NEAP__PANEL_SHARED "neap.panel_shared"
#define NEAP__COUNTERS     "neap.counters"

typedef struct box_shared {
  box_panel box; /* first: to breakers it is a panel like any other */
  neap_shared shared;
  bool is_lent; /* somebody else's to close: lua/src/nginx_lend.c */
} box_shared;

/* The panel at `arg`, open or closed; *shared (unless NULL) is NULL if it is in no file. */
box_panel *neap__check_panel_box(lua_State *L, int arg, box_shared **shared);

/* Adds the methods of all panels to the metatable on top. */
void neap__set_panel_methods(lua_State *L);

/* Pushes counters of the panel at `panel_index`, an absolute index. */
void neap__push_counters(lua_State *L, int panel_index, neap_counters *counters);

void neap__open_panel_shared(lua_State *L);
void neap__open_counters(lua_State *L);

#endif
