/*
 * panel.pml: model of what a shared panel adds (core/src/panel.c, panel_shared.c).  Two parts, one at a time:
 *   (default)   rows claimed by name, whoever dies while claiming
 *   -DOPENING   the file: found, made or replaced by several at once, whoever dies meanwhile
 * Run:  tests/model/run.sh, or by hand as breaker.pml.
 * Each shared load, store, compare-and-swap or system call is one step; a process may die before any of them (-DCRASH=n).
 * The numbers in brackets at the asserts are those of docs/design-rules.md.
 */
#ifndef CRASH
#define CRASH 0
#endif
#ifndef NP
#define NP 2          /* processes */
#endif

byte ncrash = 0, ndone = 0;
#define STEP(...)  if :: atomic { __VA_ARGS__ } :: atomic { ncrash < CRASH -> ncrash++; goto dead } fi

#ifndef OPENING
/*
 * Rows.  A name is a number from 1; its hash is the number, and where its search begins any row at all (chosen once).  Its text
 * is NW words, each NAME * 16 + i.
 *   NOSWAP     the hash is stored, not swapped in                     (mutant: two names in one row)
 *   SKIP       a swap that failed goes on to the next row             (mutant: one name in two rows)
 *   OWNNAME    only who made the row writes its name                  (mutant: a row without a name)
 *   EARLY      `named` is set before the words                        (mutant: half a name)
 */
#ifndef NROWS
#define NROWS 2
#endif
#ifndef NN
#define NN 2          /* names */
#endif
#ifndef K
#define K 1           /* claims of each process */
#endif
#define NW 2          /* words of a name */
#define WORD(name,i) ((name) * 16 + (i) + 1)

byte hash[NROWS];
byte text[NROWS * NW];
bit named[NROWS];
byte start[NN + 1];
byte at[NN + 1];      /* ghost: the row + 1 that a name was once given */

inline write_name(r, name)
{
	i = 0;
#ifdef EARLY
	STEP(named[r] = 1);
#endif
	do
	:: i < NW ->
		STEP(w = text[r * NW + i]);
		if
		:: w == 0 -> STEP(if :: text[r * NW + i] == 0 -> text[r * NW + i] = WORD(name, i) :: else -> skip fi)
		:: else
		fi;
		i++
	:: else -> break
	od;
#ifndef EARLY
	STEP(named[r] = 1);
#endif
}

/* Whoever sees `named` may read the words. */
inline read_name(r, name)
{
	STEP(w = named[r]);
	if
	:: w == 1 ->
		i = 0;
		do
		:: i < NW -> STEP(assert(text[r * NW + i] == WORD(name, i))); i++   /* [41] */
		:: else -> break
		od
	:: else
	fi
}

proctype claimer()
{
	byte k, name, n, r, h, i, w; bit made;
	do
	:: k >= K -> break
	:: else -> k++;
	name = 1;
	do :: name < NN -> name++ :: break od;
	n = 0; made = 0;
	do
	:: n >= NROWS ->                                    /* full: for good, and none of them is ours */
		atomic {
		i = 0;
		do
		:: i < NROWS -> assert(hash[i] != 0 && hash[i] != name); i++    /* [42] */
		:: else -> break
		od
		};
		goto next
	:: else ->
		r = (start[name] + n) % NROWS;
		STEP(h = hash[r]);
		if
		:: h == name -> break
		:: h == 0 ->
#ifdef NOSWAP
			STEP(hash[r] = name); made = 1; break
#else
			STEP(if :: hash[r] == 0 -> hash[r] = name; made = 1 :: else -> made = 0 fi);
			if
			:: made -> break
# ifdef SKIP
			:: else -> n++
# else
			:: else -> skip                     /* look at the same row again */
# endif
			fi
#endif
		:: else -> n++
		fi
	od;
	atomic {                                            /* one name, one row, for good */
	assert(at[name] == 0 || at[name] == r + 1);         /* [41] */
	at[name] = r + 1;
	assert(hash[r] == name)                             /* [41] */
	};
#ifdef OWNNAME
	if :: made -> write_name(r, name) :: else fi;
#else
	STEP(w = named[r]);
	if :: w == 0 -> write_name(r, name) :: else fi;
#endif
	read_name(r, name);
next:	n = 0; r = 0; h = 0; i = 0; w = 0; made = 0
	od;
dead:	atomic { ndone++ }
}

/* When all have finished or died: no two rows of one name; who claims a name now has its row, with all of its text. */
proctype auditor()
{
	byte name, n, r, i; bit found;
	atomic {
	ndone == NP ->
	n = 0;
	do
	:: n < NROWS ->
		i = n + 1;
		do
		:: i < NROWS -> assert(hash[n] == 0 || hash[n] != hash[i]); i++    /* [41] */
		:: else -> break
		od;
		n++
	:: else -> break
	od;
#ifdef OWNNAME
	n = 0;
	do
	:: n < NROWS -> assert(hash[n] == 0 || at[hash[n]] == 0 || named[n]); n++   /* [41]: who was given it finds it named */
	:: else -> break
	od;
#endif
	name = 1;
	do
	:: name > NN -> break
	:: else ->
		n = 0; found = 0;
		do
		:: n < NROWS && !found ->
			r = (start[name] + n) % NROWS;
			if
			:: hash[r] == 0 || hash[r] == name -> hash[r] = name; found = 1
			:: else -> n++
			fi
		:: else -> break
		od;
		if
		:: found ->
			i = 0;
			do
			:: i < NW ->
				if :: text[r * NW + i] == 0 -> text[r * NW + i] = WORD(name, i) :: else fi;
				assert(text[r * NW + i] == WORD(name, i));      /* [41]: what the dead left can be completed */
				i++
			:: else -> break
			od
		:: else
		fi;
		name++
	od
	}
}

init {
	byte i = 1;
	atomic {
	do
	:: i <= NN -> if :: start[i] = 0 :: start[i] = NROWS - 1 fi; i++
	:: else -> break
	od;
	i = 0;
	do :: i < NP -> run claimer(); i++ :: else -> break od;
	run auditor()
	}
}

#else
/*
 * The file.  NF inodes: each is empty, half made, good, or bad (what was there before: cut, or of another boot).  `named` is
 * the inode that the path leads to, `aside` that of .new; 0 is none.  The lock goes with its holder.
 *   INPLACE    it is made under its name                              (mutant: half a panel is used)
 *   ONELOOK    with the lock taken, nobody looks again                (mutant: two panels in use)
 *   NOLOCK     nobody takes the lock                                  (mutant: two panels in use)
 *   CUT        a bad file is made good in place                       (mutant: it changes under who still has it)
 *   BAD        there is a bad file in the beginning
 */
#define NF 8
mtype = { EMPTY, HALF, GOOD, USELESS };

mtype file[NF];
byte named = 0, aside = 0, used = 0;
byte lock = 0;        /* its holder + 1 */
byte old = 0;         /* the bad file that somebody may still have */
byte next_inode = 1;

inline look_at(f)     /* open, then judge what was opened; later names change nothing */
{
	STEP(f = named);
	if
	:: f != 0 -> STEP(good = (file[f] == GOOD))
	:: else -> good = 0
	fi
}

proctype opener(byte me)
{
	byte f, mine; bit good;
	look_at(f);
	if :: good -> goto attach :: else fi;
#ifndef NOLOCK
	STEP(lock == 0 -> lock = me + 1);
# ifndef ONELOOK
	look_at(f);
	if :: good -> goto attach :: else fi;
# endif
#endif
#ifdef CUT
	if
	:: f != 0 -> STEP(file[f] = HALF); STEP(file[f] = GOOD); goto attach
	:: else
	fi;
#endif
#ifdef INPLACE
	STEP(mine = next_inode; next_inode++; file[mine] = EMPTY; named = mine);
	STEP(file[mine] = HALF);
	STEP(file[mine] = GOOD);
#else
	STEP(aside = 0);                                    /* what a dead maker left */
	STEP(mine = next_inode; next_inode++; file[mine] = EMPTY; aside = mine);
	STEP(file[mine] = HALF);
	STEP(file[mine] = GOOD);
	STEP(assert(file[aside] == GOOD || aside != mine); named = aside; aside = 0);
#endif
	f = mine;
attach:
	atomic {
	assert(f != 0);
	assert(file[f] == GOOD);                            /* [40] */
	assert(used == 0 || used == f);                     /* [40]: all of them use the same */
	used = f
	};
dead:	atomic {
	if :: lock == me + 1 -> lock = 0 :: else fi;
	ndone++
	}
}

/* The name never leads to what is half made; and what somebody has is never cut or rewritten. */
proctype watcher()
{
	do
	:: atomic {
		named != 0 ->
		assert(file[named] == GOOD || file[named] == USELESS);     /* [40] */
		assert(old == 0 || file[old] == USELESS)                   /* [40] */
	   }
	   if :: ndone == NP -> break :: ndone < NP fi
	:: ndone == NP -> break
	od
}

init {
	byte i = 0;
	atomic {
	do :: i < NF -> file[i] = EMPTY; i++ :: else -> break od;
#ifdef BAD
	file[next_inode] = USELESS; named = next_inode; old = next_inode; next_inode++;
#endif
	i = 0;
	do :: i < NP -> run opener(i); i++ :: else -> break od;
	run watcher()
	}
}
#endif
