/* token.h: the secret that admin clients know. */
#ifndef NEAP_CMD_TOKEN_H
#define NEAP_CMD_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

#define TOKEN_MIN 16
#define TOKEN_MAX 512

/* Reads the one line of the file into token[TOKEN_MAX + 1].
 *
 * Errors: false, with one line in error[size]: not a plain file, another user's, one that others
 *         may read or anybody else may write, more than one line, a token that is too short, too
 *         long or has blanks in it.  token is then unchanged. */
bool token_read(const char *path, char *token, char *error, size_t size);

#endif
