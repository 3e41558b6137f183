/* token.c: what is open is checked, not what the name stood for a moment before. */
#include "token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(char *error, size_t size, const char *path, const char *format, ...) {
  int used = snprintf(error, size, "%s: ", path);
  if (used < 0 || (size_t)used >= size) return false;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error + used, size - (size_t)used, format, arguments);
  va_end(arguments);
  return false;
}

static bool is_private(const struct stat *info, const char *path, char *error, size_t size) {
  if (!S_ISREG(info->st_mode)) return fail(error, size, path, "must be a plain file");
  if (info->st_uid != geteuid() && info->st_uid != 0)
    return fail(error, size, path, "belongs to another user; it must be yours or root's");
  if (info->st_mode & (S_IRWXO | S_IWGRP))
    return fail(error, size, path,
                "has mode %04o, so others can read or change it; try chmod 600 %s",
                (unsigned)info->st_mode & 07777, path);
  return true;
}

static bool is_token(const char *text, size_t length, const char *path, char *error, size_t size) {
  if (length < TOKEN_MIN || length > TOKEN_MAX)
    return fail(error, size, path,
                "the token has %zu bytes; must have %d to %d, e.g. from openssl rand -hex 32",
                length, TOKEN_MIN, TOKEN_MAX);
  for (size_t i = 0; i < length; i++)
    if (text[i] <= ' ' || text[i] > '~')
      return fail(error, size, path,
                  "the token must be visible ASCII without blanks; byte %zu is not", i + 1);
  return true;
}

/* Where the one line ends; a second one is no part of a token, but perhaps of a wrong file. */
static bool line_end(const char *text, size_t length, size_t *end, const char *path, char *error,
                     size_t size) {
  for (*end = 0; *end < length && text[*end] != '\r' && text[*end] != '\n';) ++*end;
  size_t rest = length - *end;
  if (!rest || (rest == 1 && text[*end] == '\n') || (rest == 2 && !memcmp(text + *end, "\r\n", 2)))
    return true;
  return fail(error, size, path, "has more than one line; must have the token and nothing else");
}

bool token_read(const char *path, char *token, char *error, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return fail(error, size, path, "%s", strerror(errno));
  struct stat info;
  char text[TOKEN_MAX + 3]; /* the longest with its line end, and one byte that is too much */
  ssize_t length = -1;
  bool ok = fstat(fd, &info) == 0 && is_private(&info, path, error, size);
  if (ok) length = read(fd, text, sizeof text);
  int read_error = errno;
  close(fd);
  if (!ok) return false;
  if (length < 0) return fail(error, size, path, "%s", strerror(read_error));
  size_t end;
  if (!line_end(text, (size_t)length, &end, path, error, size) ||
      !is_token(text, end, path, error, size))
    return false;
  memcpy(token, text, end);
  token[end] = '\0';
  return true;
}
