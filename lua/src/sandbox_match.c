/* sandbox_match.c: Lua patterns, with every character looked at paid for.
 *
 * A pattern is a sequence of items; an item is one character class and perhaps a repetition.
 *
 *   class        .  %a  [set]  x            item_end() finds its end, item_accepts() tries it
 *   repetition   * + (most first)  - (fewest first)  ?
 *   other items  ( )  ()  %1  %bxy  %f[set]  $ at the end
 *
 * Matching tries and takes back, which for patterns like ".-.-.-.-b$" is a great many tries.  So it
 * charges; and since it calls itself only at repetitions and captures, its depth is bounded by the
 * pattern's length, and by DEPTH. */
#include "sandbox.h"

#include <ctype.h>
#include <string.h>

#define DEPTH 200

/* ---- Classes --------------------------------------------------------------------------------- */

static bool class_accepts(int class, int c) {
  int is;
  switch (tolower(class)) {
    case 'a': is = isalpha(c); break;
    case 'c': is = iscntrl(c); break;
    case 'd': is = isdigit(c); break;
    case 'g': is = isgraph(c); break;
    case 'l': is = islower(c); break;
    case 'p': is = ispunct(c); break;
    case 's': is = isspace(c); break;
    case 'u': is = isupper(c); break;
    case 'w': is = isalnum(c); break;
    case 'x': is = isxdigit(c); break;
    case 'z': is = c == 0; break; /* of Lua 5.1 */
    default: return class == c;
  }
  return isupper(class) ? !is : is;
}

/* p is behind "[".  Where the set's "]" is: one that comes first stands for itself. */
static const char *set_end(neap__match *m, const char *p) {
  if (p < m->pattern_end && *p == '^') p++;
  for (bool first = true;; first = false) {
    if (p >= m->pattern_end) luaL_error(m->L, "malformed pattern (missing ']')");
    if (*p == ']' && !first) return p;
    p += *p == '%' ? 2 : 1;
  }
}

/* p is at "[", end at its "]". */
static bool set_accepts(const char *p, const char *end, int c) {
  bool inside = true;
  if (*++p == '^') inside = false, p++;
  for (; p < end; p++) {
    if (*p == '%') {
      if (class_accepts((unsigned char)*++p, c)) return inside;
    } else if (p + 2 < end && p[1] == '-') {
      if ((unsigned char)p[0] <= c && c <= (unsigned char)p[2]) return inside;
      p += 2;
    } else if ((unsigned char)*p == c) {
      return inside;
    }
  }
  return !inside;
}

static const char *item_end(neap__match *m, const char *p) {
  if (*p == '[') return set_end(m, p + 1) + 1;
  if (*p != '%') return p + 1;
  if (p + 1 >= m->pattern_end) luaL_error(m->L, "malformed pattern (ends with '%%')");
  return p + 2;
}

/* Whether the class p..end accepts the character at s. */
static bool item_accepts(neap__match *m, const char *s, const char *p, const char *end) {
  if (s >= m->subject_end) return false;
  neap__charge(m->L, *p == '[' ? (size_t)(end - p) : 1);
  int c = (unsigned char)*s;
  switch (*p) {
    case '.': return true;
    case '%': return class_accepts((unsigned char)p[1], c);
    case '[': return set_accepts(p, end - 1, c);
    default: return (unsigned char)*p == c;
  }
}

/* ---- Repetitions ----------------------------------------------------------------------------- */

static const char *most_first(neap__match *m, const char *s, const char *p, const char *end) {
  ptrdiff_t n = 0;
  while (item_accepts(m, s + n, p, end)) n++;
  for (; n >= 0; n--) {
    const char *matched = neap__match_here(m, s + n, end + 1);
    if (matched) return matched;
  }
  return NULL;
}

static const char *fewest_first(neap__match *m, const char *s, const char *p, const char *end) {
  for (;; s++) {
    const char *matched = neap__match_here(m, s, end + 1);
    if (matched) return matched;
    if (!item_accepts(m, s, p, end)) return NULL;
  }
}

/* ---- Captures and the rest ------------------------------------------------------------------- */

static const char *capture_start(neap__match *m, const char *s, const char *p, ptrdiff_t what) {
  if (m->count >= NEAP__MATCH_CAPTURES) luaL_error(m->L, "too many captures");
  m->capture[m->count].at = s;
  m->capture[m->count].length = what;
  m->count++;
  const char *matched = neap__match_here(m, s, p);
  if (!matched) m->count--;
  return matched;
}

static const char *capture_finish(neap__match *m, const char *s, const char *p) {
  int i = m->count - 1;
  while (i >= 0 && m->capture[i].length != CAPTURE_OPEN) i--;
  if (i < 0) luaL_error(m->L, "invalid pattern capture");
  m->capture[i].length = s - m->capture[i].at;
  const char *matched = neap__match_here(m, s, p);
  if (!matched) m->capture[i].length = CAPTURE_OPEN;
  return matched;
}

/* %1: the text of an earlier capture.  Where s is after it, or NULL. */
static const char *same_again(neap__match *m, const char *s, char digit) {
  int i = digit - '1';
  if (i < 0 || i >= m->count || m->capture[i].length == CAPTURE_OPEN)
    luaL_error(m->L, "invalid capture index %%%d", i + 1);
  if (m->capture[i].length == CAPTURE_POSITION) return NULL;
  size_t length = (size_t)m->capture[i].length;
  neap__charge(m->L, NEAP__UNITS_OF(length));
  if ((size_t)(m->subject_end - s) < length || memcmp(s, m->capture[i].at, length) != 0)
    return NULL;
  return s + length;
}

/* %bxy: from an x to the y that balances it. */
static const char *balanced(neap__match *m, const char *s, const char *xy) {
  if (xy + 1 >= m->pattern_end) luaL_error(m->L, "malformed pattern (missing arguments to '%%b')");
  if (s >= m->subject_end || *s != xy[0]) return NULL;
  for (int depth = 1; ++s < m->subject_end;) {
    neap__charge(m->L, 1);
    if (*s == xy[1]) {
      if (--depth == 0) return s + 1;
    } else if (*s == xy[0]) {
      depth++;
    }
  }
  return NULL;
}

/* %f[set]: whether s is where the set begins to hold; p at "[", end behind "]". */
static bool frontier(neap__match *m, const char *s, const char *p, const char *end) {
  neap__charge(m->L, (size_t)(end - p));
  int before = s == m->subject ? 0 : (unsigned char)s[-1];
  int here = s < m->subject_end ? (unsigned char)*s : 0;
  return !set_accepts(p, end - 1, before) && set_accepts(p, end - 1, here);
}

/* An item that begins with %: moves *s and *p over it.  ITEM_CLASS if it is a class like others. */
typedef enum item { ITEM_CLASS, ITEM_MATCHED, ITEM_FAILED } item;

static item special(neap__match *m, const char **s, const char **p) {
  const char *at = *p + 1, *end;
  if (at >= m->pattern_end) return ITEM_CLASS;
  if (*at == 'b') {
    end = at + 3;
    *s = balanced(m, *s, at + 1);
  } else if (*at == 'f') {
    if (at + 1 >= m->pattern_end || at[1] != '[')
      luaL_error(m->L, "missing '[' after '%%f' in pattern");
    end = item_end(m, at + 1);
    if (!frontier(m, *s, at + 1, end)) return ITEM_FAILED;
  } else if (isdigit((unsigned char)*at)) {
    end = at + 1;
    *s = same_again(m, *s, *at);
  } else {
    return ITEM_CLASS;
  }
  *p = end;
  return *s ? ITEM_MATCHED : ITEM_FAILED;
}

/* ---- The pattern from here on ---------------------------------------------------------------- */

static const char *match_items(neap__match *m, const char *s, const char *p) {
  while (p < m->pattern_end) {
    if (*p == '(') {
      bool position = p + 1 < m->pattern_end && p[1] == ')';
      return capture_start(m, s, p + (position ? 2 : 1),
                           position ? CAPTURE_POSITION : CAPTURE_OPEN);
    }
    if (*p == ')') return capture_finish(m, s, p + 1);
    if (*p == '$' && p + 1 == m->pattern_end) return s == m->subject_end ? s : NULL;
    if (*p == '%') {
      item found = special(m, &s, &p);
      if (found == ITEM_MATCHED) continue;
      if (found == ITEM_FAILED) return NULL;
    }
    const char *end = item_end(m, p);
    switch (end < m->pattern_end ? *end : 0) {
      case '*': return most_first(m, s, p, end);
      case '+': return item_accepts(m, s, p, end) ? most_first(m, s + 1, p, end) : NULL;
      case '-': return fewest_first(m, s, p, end);
      case '?': {
        const char *matched =
            item_accepts(m, s, p, end) ? neap__match_here(m, s + 1, end + 1) : NULL;
        if (matched) return matched;
        p = end + 1;
        break;
      }
      default:
        if (!item_accepts(m, s, p, end)) return NULL;
        s++;
        p = end;
    }
  }
  return s;
}

const char *neap__match_here(neap__match *m, const char *s, const char *p) {
  neap__charge(m->L, 1);
  if (++m->depth > DEPTH) luaL_error(m->L, "pattern too complex");
  s = match_items(m, s, p);
  m->depth--;
  return s;
}
