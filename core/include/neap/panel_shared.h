/* panel_shared.h: a panel that processes share, in a file that each of them maps.  The library
 * neap::shared, on top of neap.h; Linux.
 *
 *     neap_shared shared;
 *     neap_shared_problem problem;
 *     if (!neap_shared_open(&shared, "/dev/shm/shop", 1000, &problem)) return log(problem.text);
 *     if (shared.notice[0]) log(shared.notice);
 *     neap_breaker *b = neap_shared_claim(&shared, "payments", 8, &problem);
 *     ...                                             // all of neap.h works on b and shared.panel
 *     if (!neap_shared_check(&shared, &problem)) ...  // now and then, such as once a second
 *     neap_shared_close(&shared);
 *
 * The file is /dev/shm/shop.v2: the number is that of the layout, so versions of neap that lay a
 * panel out differently never meet.  It is made once, whole, and renamed into place; after that
 * everything is lock-free: a process that is killed or stopped at any instruction never blocks or
 * corrupts the others.  Windows, probe slots and totals are those of all processes together.
 *
 * Units.   As in neap.h.  Breakers of a shared panel go by the system's monotonic clock only:
 *          neap_clock_coarse() or neap_clock_precise().
 * Threads. Opening and closing: one thread.  Everything else as in neap.h.
 * Fork.    A child has its parent's panel at the same place, whoever it runs as: open before
 *          privileges are dropped.  Closing one's own leaves the others' alone.
 * Trust.   A file is used only if it is a regular file of the caller's (the effective user's), mode
 *          0600, on tmpfs, and no link, symbolic or hard.  Otherwise it is refused, never touched.
 *          One that is ours but of another boot of the machine, cut, or not a panel is replaced: a
 *          new file is renamed over it.  No file is ever cut or rewritten.
 * Caveats. - Who may write the file may do anything to the breakers in it: the owner and root.
 *            Overwritten rows are wrong, but no call crashes or hangs on them: neap_breaker_reset()
 *            and neap_breaker_set_mode() put state and mode right, a window forgets.
 *          - A file that is cut under a running process ends it with SIGBUS, if it touches what is
 *            missing before neap_shared_check() sees it.
 *          - A process that dies while it moves counts from a window to the totals loses them: at
 *            most the calls of one kind in a sixteenth of a time window, or 65,535 successes of a
 *            count window.  One that dies after a swap loses its own call's count or event.
 *            State, slots and windows lose nothing else.
 *          - A file outlives its users: remove it (and its .lock) to be rid of it. */
#ifndef NEAP_PANEL_SHARED_H
#define NEAP_PANEL_SHARED_H

#include <neap/neap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What can go wrong. */
typedef enum neap_shared_status {
  NEAP_SHARED_OK = 0,
  NEAP_SHARED_EARGUMENT, /* a path that does not begin with / or is too long; the capacity */
  NEAP_SHARED_ENONE,     /* capacity 0, and there is no file */
  NEAP_SHARED_ESYSTEM,   /* the system refused: no directory, no permission, tmpfs full, no /proc */
  NEAP_SHARED_EREFUSED,  /* there is a file which is not to be trusted: see Trust */
  NEAP_SHARED_EDAMAGED,  /* it is cut or overwritten */
  NEAP_SHARED_EGONE,     /* the path leads to no file or another: who opens it now is elsewhere */
  NEAP_SHARED_EBUSY,     /* somebody has been making the file for 5 s, and may be stopped */
  NEAP_SHARED_EFULL,     /* no free row */
  NEAP_SHARED_ENAME      /* as NEAP_ENAME */
} neap_shared_status;

typedef struct neap_shared_problem {
  neap_shared_status status;
  char text[512]; /* one line: the file, what is wrong, what would be right */
} neap_shared_problem;

#define NEAP_SHARED_PATH_MAX 200 /* bytes of the path that is asked for */

typedef enum neap_shared_how {
  NEAP_SHARED_CREATED, /* there was no file */
  NEAP_SHARED_ATTACHED,
  NEAP_SHARED_REPLACED /* there was one of no use: `notice` says why */
} neap_shared_how;

/* An open panel.  To be read only; copy it at will, close one of the copies. */
typedef struct neap_shared {
  neap_panel *panel; /* NULL once closed */
  uint32_t capacity; /* of the file: what it was made with */
  neap_shared_how how;
  char path[NEAP_SHARED_PATH_MAX + 16]; /* of the file, its layout's number included */
  char notice[512]; /* "", or a line to log: why it was replaced, or that its capacity is another */
  void *memory;
  size_t size;
  uint64_t device, inode;
} neap_shared;

/* Opens the panel at `path`, an absolute path on tmpfs to which .v2 is added, or makes it with
 * `capacity` rows (1..4,194,304).  One that is there keeps the capacity that it was made with;
 * to have another, stop its users and remove it.  capacity 0: only what is there.
 *
 * Effects: may make the file, its .lock and for a moment a .new beside it.  Waits, 5 s at most, for
 *          another process only if both have to make the file.
 * Errors:  false, with *problem (unless NULL); *out is then unchanged.  The statuses up to
 *          NEAP_SHARED_EBUSY but for EGONE; EDAMAGED only if capacity is 0. */
NEAP_API bool neap_shared_open(neap_shared *out, const char *path, uint32_t capacity,
                               neap_shared_problem *problem);

/* Whether the file is as it was: there, whole, nobody else's.
 *
 * Effects: if it was cut, this process goes on alone: the panel's memory is from now on its own,
 *          empty and closed, at the same place; breakers that are held go on working.
 * Errors:  false, with *problem (unless NULL): NEAP_SHARED_EDAMAGED, NEAP_SHARED_EGONE,
 *          NEAP_SHARED_EREFUSED. */
NEAP_API bool neap_shared_check(const neap_shared *s, neap_shared_problem *problem);

/* The breaker of that name, made if there is none: neap_panel_claim() with a line to say where.
 *
 * Errors: NULL, with *problem (unless NULL): NEAP_SHARED_EFULL, NEAP_SHARED_ENAME, and those of
 *         neap_shared_check(), which goes before, but EGONE. */
NEAP_API neap_breaker *neap_shared_claim(const neap_shared *s, const char *name, size_t length,
                                         neap_shared_problem *problem);

/* Gives the memory back; the file stays.  Nobody in this process may use the panel or its breakers
 * any more.  Again: nothing. */
NEAP_API void neap_shared_close(neap_shared *s);

#ifdef __cplusplus
}
#endif
#endif
