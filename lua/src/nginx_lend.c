/* nginx_lend.c: a panel that outlives the Lua state that has opened it. */
#include "nginx.h"

#include "nginx_request.h"
#include "panel.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

/* With lua_code_cache off every request has a Lua state of its own, in a worker that may not open
 * the file any more: it borrows what the master has opened.  That is the process's from then on,
 * since the master's state may go: after a reload that fails the new one does.  One mapping for a
 * file, however often it is opened again. */
static neap_shared lent;

/* requests:lend(panel): to be called before anybody has a breaker of it */
int neap__nginx_lend(lua_State *L) {
  luaL_checkudata(L, 1, NEAP__NGX_REQUESTS);
  box_shared *box = (box_shared *)luaL_checkudata(L, 2, NEAP__PANEL_SHARED);
  if (box->is_lent) return 0;
  if (lent.panel && lent.device == box->shared.device && lent.inode == box->shared.inode) {
    neap_shared_close(&box->shared);
    box->shared = lent;
    box->box.panel = lent.panel;
  }
  box->is_lent = true;
  lent = box->shared;
  return 0;
}

/* requests:borrow(path) -> panel | nothing */
int neap__nginx_borrow(lua_State *L) {
  luaL_checkudata(L, 1, NEAP__NGX_REQUESTS);
  size_t length;
  const char *path = luaL_checklstring(L, 2, &length);
  bool is_it = lent.panel && strncmp(lent.path, path, length) == 0 && lent.path[length] == '.';
  if (!is_it || !&ngx_process || ngx_process != NGX_PROCESS_WORKER) return 0;
  box_shared *box = (box_shared *)compat_new(L, sizeof *box, 0);
  *box = (box_shared){.box = {.panel = lent.panel}, .shared = lent, .is_lent = true};
  luaL_getmetatable(L, NEAP__PANEL_SHARED);
  lua_setmetatable(L, -2);
  return 1;
}

#endif
