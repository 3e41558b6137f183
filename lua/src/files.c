/* files.c: what io cannot do for a program that watches files: list a directory, and read a file
 * without the risk that it is a pipe that never answers or a device that never ends. */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lauxlib.h"

#define DIRECTORY "neap.directory"

/* nil, "path: message", true if there is nothing of that name */
static int push_failure(lua_State *L, const char *path, const char *message, int is_gone) {
  lua_pushnil(L);
  lua_pushfstring(L, "%s: %s", path, message);
  lua_pushboolean(L, is_gone);
  return 3;
}

static int push_errno(lua_State *L, const char *path, int error) {
  return push_failure(L, path, strerror(error), error == ENOENT || error == ENOTDIR);
}

/* ---- list ------------------------------------------------------------------------------------ */

/* The handle is boxed, so that it is closed even if a name finds no memory. */
static int directory_close(lua_State *L) {
  DIR **box = (DIR **)luaL_checkudata(L, 1, DIRECTORY);
  if (*box) closedir(*box);
  *box = NULL;
  return 0;
}

static DIR **directory_box(lua_State *L) {
  DIR **box = (DIR **)lua_newuserdata(L, sizeof *box);
  *box = NULL;
  if (luaL_newmetatable(L, DIRECTORY)) {
    lua_pushcfunction(L, directory_close);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
  return box;
}

/* list(path) -> names, unsorted, without "." and ".." | nil, message, is_gone */
static int l_list(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  lua_settop(L, 1);
  DIR **box = directory_box(L);
  *box = opendir(path);
  if (!*box) return push_errno(L, path, errno);
  lua_newtable(L);
  int n = 0;
  for (struct dirent *entry; (entry = readdir(*box)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    lua_pushstring(L, entry->d_name);
    lua_rawseti(L, -2, ++n);
  }
  closedir(*box);
  *box = NULL;
  return 1;
}

/* ---- read ------------------------------------------------------------------------------------ */

/* Reads up to `size` bytes; -1 with errno set. */
static ssize_t read_up_to(const char *path, char *into, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return -1;
  size_t done = 0;
  while (done < size) {
    ssize_t n = read(fd, into + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int error = errno;
      close(fd);
      errno = error;
      return -1;
    }
    if (n == 0) break;
    done += (size_t)n;
  }
  close(fd);
  return (ssize_t)done;
}

/* read(path, max_bytes) -> text | nil, message, is_gone.  Regular files only. */
static int l_read(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  lua_Integer max = luaL_checkinteger(L, 2);
  luaL_argcheck(L, max >= 0, 2, "must not be negative");
  lua_settop(L, 2);
  for (int attempt = 0; attempt < 8; attempt++) {
    struct stat status;
    if (stat(path, &status) != 0) return push_errno(L, path, errno);
    if (!S_ISREG(status.st_mode)) return push_failure(L, path, "not a regular file", 0);
    if (status.st_size > (off_t)max) return push_errno(L, path, EFBIG);
    /* Memory before the file: an error here leaves nothing open. */
    size_t room = (size_t)status.st_size + 1;
    char *text = (char *)lua_newuserdata(L, room);
    ssize_t length = read_up_to(path, text, room);
    if (length < 0) return push_errno(L, path, errno);
    if ((size_t)length < room) {
      lua_pushlstring(L, text, (size_t)length);
      return 1;
    }
    lua_settop(L, 2); /* it has grown meanwhile */
  }
  return push_failure(L, path, "grows while it is being read", 0);
}

/* ---- environment ----------------------------------------------------------------------------- */

extern char **environ;

/* environment(prefix) -> { NAME = text } of the variables whose names begin with it */
static int l_environment(lua_State *L) {
  size_t length;
  const char *prefix = luaL_checklstring(L, 1, &length);
  lua_newtable(L);
  for (char **entry = environ; entry && *entry; entry++) {
    const char *equals = strchr(*entry, '=');
    if (!equals || strncmp(*entry, prefix, length) != 0) continue;
    lua_pushlstring(L, *entry, (size_t)(equals - *entry));
    lua_pushstring(L, equals + 1);
    lua_rawset(L, -3);
  }
  return 1;
}

void neap__open_files(lua_State *L) {
  lua_pushcfunction(L, l_list);
  lua_setfield(L, -2, "list");
  lua_pushcfunction(L, l_read);
  lua_setfield(L, -2, "read");
  lua_pushcfunction(L, l_environment);
  lua_setfield(L, -2, "environment");
}
