/* durable.c: files that outlive the program: written so that a process killed at any instruction, or
 * a machine without power, leaves nothing that the next one can't read.
 *
 *   open_file   made if need be; ours alone (0600), a regular file, no link
 *   append      all of it, or none: what was written of a text that did not fit is taken back
 *   sync        what was appended is on the disk when it answers
 *   replace     by rename: the next one finds the old file or the new one, never half of one
 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "binding.h"

#define DURABLE_FILE "neap.file"
#define READ_MOST    ((lua_Integer)1 << 26) /* bytes at once */

typedef struct durable_file {
  int fd; /* -1: closed */
  off_t end;
} durable_file;

static int push_failure(lua_State *L, const char *path, const char *message) {
  lua_pushnil(L);
  lua_pushfstring(L, "%s: %s", path, message);
  return 2;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* What is wrong with a file that others could have put there, or could read; NULL: nothing. */
static const char *fault_of(const struct stat *status) {
  if (!S_ISREG(status->st_mode)) return "is not a regular file";
  if (status->st_uid != geteuid()) return "belongs to somebody else";
  if (status->st_mode & (S_IRWXG | S_IRWXO)) return "can be used by others: it must have mode 0600";
  if (status->st_nlink > 1) return "has a second name";
  return NULL;
}

/* The directory that a path is in. */
static bool directory_of(const char *path, char directory[PATH_MAX]) {
  const char *slash = strrchr(path, '/');
  size_t length = slash ? (size_t)(slash - path) : 1;
  if (length >= PATH_MAX) return false;
  memcpy(directory, slash ? path : ".", length);
  if (length == 0) directory[length++] = '/';
  directory[length] = '\0';
  return true;
}

/* A name that has come, gone or changed is there after a loss of power, too. */
static bool sync_directory(const char *path) {
  char directory[PATH_MAX];
  if (!directory_of(path, directory)) return errno = ENAMETOOLONG, false;
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  bool done = fsync(fd) == 0;
  int error = errno;
  close(fd);
  errno = error;
  return done;
}

/* open_file(path, is_new) -> file | nil, message.  is_new: without what was in it. */
static int l_open_file(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  bool is_new = lua_toboolean(L, 2);
  durable_file *f = (durable_file *)lua_newuserdata(L, sizeof *f);
  *f = (durable_file){.fd = -1};
  luaL_setmetatable(L, DURABLE_FILE);
  struct stat status;
  f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
  if (f->fd < 0)
    return push_failure(L, path, errno == ELOOP ? "is a symbolic link" : strerror(errno));
  const char *fault = fstat(f->fd, &status) != 0 ? strerror(errno) : fault_of(&status);
  if (!fault && is_new && ftruncate(f->fd, 0) != 0) fault = strerror(errno);
  if (!fault && status.st_size == 0 && !sync_directory(path)) fault = strerror(errno);
  if (fault) {
    close(f->fd);
    f->fd = -1;
    return push_failure(L, path, fault);
  }
  f->end = is_new ? 0 : status.st_size;
  return 1;
}

static durable_file *check_file(lua_State *L) {
  durable_file *f = (durable_file *)luaL_checkudata(L, 1, DURABLE_FILE);
  luaL_argcheck(L, f->fd >= 0, 1, "the file is closed");
  return f;
}

/* file:close() */
static int l_close(lua_State *L) {
  durable_file *f = (durable_file *)luaL_checkudata(L, 1, DURABLE_FILE);
  if (f->fd >= 0) close(f->fd);
  f->fd = -1;
  return 0;
}

/* ---- Using ----------------------------------------------------------------------------------- */

/* Answers nil and the error of the last system call. */
static int push_errno(lua_State *L) {
  const char *message = strerror(errno);
  lua_pushnil(L);
  lua_pushstring(L, message);
  return 2;
}

/* file:append(text) -> true | nil, message */
static int l_append(lua_State *L) {
  durable_file *f = check_file(L);
  size_t length, done = 0;
  const char *text = luaL_checklstring(L, 2, &length);
  while (done < length) {
    ssize_t n = pwrite(f->fd, text + done, length - done, f->end + (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      int error = n < 0 ? errno : ENOSPC;
      int kept = ftruncate(f->fd, f->end);
      (void)kept; /* what is left of it has no right checksum */
      errno = error;
      return push_errno(L);
    }
    done += (size_t)n;
  }
  f->end += (off_t)length;
  lua_pushboolean(L, 1);
  return 1;
}

/* file:sync() -> true | nil, message.  Waits for the disk. */
static int l_sync(lua_State *L) {
  const durable_file *f = check_file(L);
  while (fdatasync(f->fd) != 0)
    if (errno != EINTR) return push_errno(L);
  lua_pushboolean(L, 1);
  return 1;
}

/* file:read(offset, length) -> text, shorter at its end | nil, message */
static int l_read(lua_State *L) {
  const durable_file *f = check_file(L);
  lua_Integer offset = luaL_checkinteger(L, 2), length = luaL_checkinteger(L, 3);
  luaL_argcheck(L, offset >= 0, 2, "must not be negative");
  luaL_argcheck(L, length >= 0 && length <= READ_MOST, 3, "out of range");
  char *text = (char *)lua_newuserdata(L, (size_t)length + 1);
  size_t done = 0;
  while (done < (size_t)length) {
    ssize_t n = pread(f->fd, text + done, (size_t)length - done, (off_t)offset + (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return push_errno(L);
    if (n == 0) break;
    done += (size_t)n;
  }
  lua_pushlstring(L, text, done);
  return 1;
}

/* file:truncate(length) -> true | nil, message */
static int l_truncate(lua_State *L) {
  durable_file *f = check_file(L);
  lua_Integer length = luaL_checkinteger(L, 2);
  luaL_argcheck(L, length >= 0 && (off_t)length <= f->end, 2, "out of range");
  if (ftruncate(f->fd, (off_t)length) != 0) return push_errno(L);
  f->end = (off_t)length;
  lua_pushboolean(L, 1);
  return 1;
}

/* file:size() -> bytes */
static int l_size(lua_State *L) {
  compat_pushwide(L, (uint64_t)check_file(L)->end);
  return 1;
}

/* file:is_removed() -> whether it has no name any more: what is written to it is gone with us */
static int l_is_removed(lua_State *L) {
  struct stat status;
  lua_pushboolean(L, fstat(check_file(L)->fd, &status) == 0 && status.st_nlink == 0);
  return 1;
}

/* file:lock() -> whether nobody else has it, until this file is closed */
static int l_lock(lua_State *L) {
  lua_pushboolean(L, flock(check_file(L)->fd, LOCK_EX | LOCK_NB) == 0);
  return 1;
}

/* file:descriptor() -> its number, for a loop that syncs it elsewhere */
static int l_descriptor(lua_State *L) {
  lua_pushinteger(L, check_file(L)->fd);
  return 1;
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* replace_file(from, to) -> true | nil, message */
static int l_replace_file(lua_State *L) {
  const char *from = luaL_checkstring(L, 1), *to = luaL_checkstring(L, 2);
  if (rename(from, to) != 0 || !sync_directory(to)) return push_failure(L, to, strerror(errno));
  lua_pushboolean(L, 1);
  return 1;
}

/* check_directory(path) -> true | nil, message: one that nobody else can put files into */
static int l_check_directory(lua_State *L) {
  const char *path = luaL_checkstring(L, 1), *fault = NULL;
  struct stat status;
  if (stat(path, &status) != 0)
    fault = strerror(errno);
  else if (!S_ISDIR(status.st_mode))
    fault = "is not a directory";
  else if (status.st_uid != geteuid() && status.st_uid != 0)
    fault = "belongs to somebody else";
  else if (status.st_mode & (S_IWGRP | S_IWOTH))
    fault = "others can write to it: it must have mode 0700 or 0755";
  else if (access(path, W_OK | X_OK) != 0)
    fault = strerror(errno);
  if (fault) return push_failure(L, path, fault);
  lua_pushboolean(L, 1);
  return 1;
}

/* wall_ms() -> milliseconds since 1970, by a clock that can be set: for what outlives a process */
static int l_wall_ms(lua_State *L) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  compat_pushwide(L, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
  return 1;
}

void neap__open_durable(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"open_file", l_open_file},
      {"replace_file", l_replace_file},
      {"check_directory", l_check_directory},
      {"wall_ms", l_wall_ms},
      {NULL, NULL},
  };
  static const luaL_Reg methods[] = {
      {"append", l_append}, {"sync", l_sync},
      {"read", l_read},     {"truncate", l_truncate},
      {"size", l_size},     {"is_removed", l_is_removed},
      {"lock", l_lock},     {"close", l_close},
      {"__gc", l_close},    {"descriptor", l_descriptor},
      {NULL, NULL},
  };
  luaL_newmetatable(L, DURABLE_FILE);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  luaL_setfuncs(L, methods, 0);
  lua_pop(L, 1);
  luaL_setfuncs(L, functions, 0);
}
