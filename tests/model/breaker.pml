/*
 * breaker.pml: model of neap's core protocol (core/src/breaker.c, report.c, window.c).  Three parts, one at a time:
 *   (default)   the state machine
 *   -DWINDOW    the time window's counters, and the mark that lets a success skip the sum
 *   -DRING      the count window's ring
 * Run:  tests/model/run.sh, or one by hand:
 *       spin -a [-D...] breaker.pml && gcc -O2 -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -o pan pan.c && ./pan -m2000000
 * Each shared load, store or compare-and-swap is one step; a worker may die between any two of them (-DCRASH=n).
 * Memory is sequentially consistent here: the code uses seq_cst for these accesses.
 * A mutant is the protocol with one thing left out: it must fail, or the check that would see it does not work.
 * The numbers in brackets at the asserts are those of docs/design-rules.md.
 */
#if defined(WINDOW)
/*
 * window part: outcome counters shared by processes, what closing does to them, and who has to look at them.
 *   WIPE   0 counters carry a tag, closing is one swap and nothing is wiped      (the engine)
 *          1 counters carry only the slice; the closer wipes, then swaps E       (mutant: dirty)
 *          2 counters carry only the slice; the closer swaps E, then wipes       (mutant: lost increments)
 *   CACHE  0 sums are taken from the counters every time                         (the engine)
 *          1 the sum of older slices is cached once per slice                    (mutant: missed trip)
 *          2 as 1, but the previous slice is always read live                    (mutant: missed trip)
 *   OWNT   evaluate only slices up to the reporter's own clock reading           (mutant: missed trip)
 *   RATE   successes are counted too; the rule is half of at least MIN calls, and the mark tells a success whether it must look
 *   BLIND  a success never looks                                                 (mutant: missed trip)
 *   LATEMARK  a failure marks after it has summed                                (mutant: missed trip)
 *   OLDMARK   an evaluation may replace the mark of a newer tag                  (mutant: missed trip)
 *   GEOM=n a reload changes the window's geometry, at any time, n times (two generations of rules, to and fro)
 *   STEPBACK  the clock goes back to 1 once, at any time
 * E is just the epoch here: even = closed, odd = open.  The tag is epoch + geometry generation.
 */
#ifndef NR
#define NR 3          /* reporters */
#endif
#ifndef NC
#define NC 1          /* closers */
#endif
#ifndef NB
#define NB 3          /* buckets */
#endif
#ifndef TMAX
#define TMAX 1        /* slices the clock advances */
#endif
#ifndef TH
#define TH 3          /* trip at TH failures */
#endif
#ifndef MIN
#define MIN 3         /* RATE: minimum calls */
#endif
#ifndef CRASH
#define CRASH 0
#endif
#ifndef WIPE
#define WIPE 0
#endif
#ifndef CACHE
#define CACHE 0
#endif
#ifndef CYCLES
#define CYCLES 1
#endif
#ifdef RATE
#define KINDS 2
#define HOLDS(bad, all) ((all) >= MIN && 2 * (bad) >= (all))
#else
#define KINDS 1
#define HOLDS(bad, all) ((bad) >= TH)
#endif
#define CELLS (NB * KINDS)
#define BAD 0         /* kinds */
#define GOOD 1
/* counter: tag 4 | slice 4 | count 4.   slices begin at 1, so that an all-zero counter is empty */
#define CE(c) ((c) & 15)
#define CS(c) (((c) >> 4) & 15)
#define CN(c) (((c) >> 8) & 15)
#define CELL(e,s,n) ((e) | ((s) << 4) | ((n) << 8))
/* mark: tag 4 | slice of the last bad call 4 | slice of the last evaluation 4 | below 1 */
#define MT(m) ((m) & 15)
#define MB(m) (((m) >> 4) & 15)
#define ME(m) (((m) >> 8) & 15)
#define ML(m) (((m) >> 12) & 1)
#define MARK(e,b,s,l) ((e) | ((b) << 4) | ((s) << 8) | ((l) << 12))
#define NEWER(x,e) ((((x) - (e)) & 15) > 0 && (((x) - (e)) & 15) < 8)
#define SLICES 8      /* ghosts are kept for slices 0..7 and tags 0..7 */
#define NOW(e,s) ((e) * SLICES + (s))

byte E = 0;
byte G = 0;                 /* geometry generation */
short cell[CELLS];
short mark = 0;
short cache = 0;            /* epoch 4 | slice 4 | sum 4 */
byte sl = 1;                /* the clock, in slices, from 1 */
byte ndone = 0, ncrash = 0, nback = 0;

byte recs[8 * SLICES * KINDS];  /* ghost: outcomes counted, by kind, tag and slice */
byte rec[8];                /* ghost: all of a tag */

#define REC(kind,e,s) recs[(kind) * 8 * SLICES + NOW(e,s)]
#define STEP(...)  if :: atomic { __VA_ARGS__ } :: atomic { ncrash < CRASH -> ncrash++; goto dead } fi
#if WIPE == 0
#define MINE(c,e)  (CE(c) == (e))
#else
#define MINE(c,e)  (1)
#endif
/* a counter that is two laps ahead was there before the clock stepped back */
#define LIVE(c,e,t) (MINE(c,e) && CS(c) > 0 && CS(c) < (t) + 2 * NB)

proctype reporter()
{
	byte e, p, g, t, at, i, k, kind, bad, all, newest, cut; short c, h, n; short v[CELLS]; bit ok;
	do
	:: k >= CYCLES -> break
	:: else -> k++;
	kind = BAD;
#ifdef RATE
	if :: kind = BAD :: kind = GOOD fi;
#endif
	STEP(p = E);
	if :: (p & 1) -> goto next :: else fi;            /* open: refused */
	STEP(t = sl);                                       /* the clock is read for the report */
again:
	STEP(ok = (E == p));
	if :: !ok -> goto next :: else fi;                 /* stale */
	e = p;
#ifdef GEOM
	STEP(g = G); e = (p + g) & 15;                     /* both only grow, so an old pair never equals a newer one */
#endif
	at = t;
	STEP(c = cell[(t % NB) * KINDS + kind]);
	if
#if WIPE == 0
	:: NEWER(CE(c), e) -> goto again                    /* stale if the epoch moved, else the new geometry */
	:: CE(c) == e && CS(c) == t -> n = CELL(e, t, CN(c) + 1)
	:: CE(c) == e && CS(c) == t + NB -> n = CELL(e, t + NB, CN(c) + 1); at = t + NB  /* one lap ahead: in place */
#else
	:: CS(c) == t -> n = CELL(0, t, CN(c) + 1)
#endif
	:: else -> n = CELL(e, t, 1)
	fi;
	STEP(if
	     :: cell[(t % NB) * KINDS + kind] == c ->
		cell[(t % NB) * KINDS + kind] = n; ok = 1;
		if :: MINE(c,e) && CS(c) != at -> REC(kind, e, CS(c)) = 0 :: else fi;   /* of another lap: forgotten */
		rec[e]++; REC(kind, e, at)++;
		assert(((E + G) & 15) != e || (E == p && G == g))   /* [14] [26] it counts where it was admitted */
	     :: else -> ok = 0
	     fi);
	if :: !ok -> goto again :: else fi;
#ifdef RATE
	if
	:: kind == GOOD ->
# ifdef BLIND
		goto next
# else
		STEP(c = mark);
		if
		:: c != 0 && MT(c) == e && MB(c) + NB > at && (ML(c) || ME(c) != at) -> skip
		:: else -> goto next
		fi
# endif
	:: else ->
# ifndef LATEMARK
marking:	STEP(c = mark);
		if
		:: NEWER(MT(c), e) -> goto next               /* the epoch or the geometry has moved */
		:: else -> n = MARK(e, (c != 0 && MT(c) == e && MB(c) > at -> MB(c) : at), at, 1)
		fi;
		if
		:: n == (c | MARK(0,0,0,1)) -> skip                 /* it says so, or that somebody found enough calls in this slice: failures look anyway */
		:: else -> STEP(if :: mark == c -> mark = n; ok = 1 :: else -> ok = 0 fi); if :: !ok -> goto marking :: else fi
		fi
# endif
	fi;
	STEP(h = mark);                                     /* what this evaluation may replace */
#endif
	/* evaluate */
	bad = 0; all = 0; newest = t; i = 0;
#if CACHE == 0
	do
	:: i < CELLS -> STEP(v[i] = cell[i]); i++
	:: else -> break
	od;
	skip;
	d_step {
# ifndef OWNT
	i = 0;                                              /* the window ends at the newest slice seen */
	do
	:: i < CELLS -> if :: LIVE(v[i],e,t) && CS(v[i]) > newest -> newest = CS(v[i]) :: else fi; i++
	:: else -> break
	od;
# endif
	i = 0;
	do
	:: i < CELLS ->
		if
		:: LIVE(v[i],e,t) && CS(v[i]) + NB > newest && CS(v[i]) <= newest ->
			all = all + CN(v[i]);
			if :: i % KINDS == BAD -> bad = bad + CN(v[i]) :: else fi
		:: else
		fi;
		v[i] = 0; i++
	:: else -> break
	od;
	i = 0
	}
#else
	/* older slices from the cache */
# if CACHE == 1
	cut = t;            /* live: slice t */
# else
	cut = t - 1;        /* live: slices t and t-1 */
# endif
again2:
	STEP(h = cache);
	if
	:: CS(h) == t && MINE(h,e) -> bad = CN(h)
	:: else ->
		bad = 0; i = 0;
		do
		:: i < NB -> STEP(c = cell[i]);
			if :: MINE(c,e) && CS(c) > 0 && CS(c) + NB > t && CS(c) < cut -> bad = bad + CN(c) :: else fi; i++
		:: else -> break
		od;
		if
		:: CS(h) < t || !MINE(h,e) -> STEP(if :: cache == h -> cache = CELL(e, t, bad); ok = 1 :: else -> ok = 0 fi); if :: !ok -> goto again2 :: else fi
		:: else
		fi
	fi;
	i = 0;
	do
	:: i < NB -> STEP(c = cell[i]); if :: MINE(c,e) && CS(c) >= cut && CS(c) > 0 -> bad = bad + CN(c) :: else fi; i++
	:: else -> break
	od;
	all = bad;
#endif
	/* [14] [26] clean window: nothing of another tag is ever seen */
	assert(all <= rec[e]);
	if
	:: HOLDS(bad, all) -> STEP(if :: E == p -> E = p + 1 :: else fi)
	:: else ->
#ifdef RATE
		/* one attempt, and only of a mark of our own tag: whoever wins has seen as much */
# ifdef OLDMARK
		n = MARK(e, MB(h), at, (all < MIN -> 1 : 0));
# else
		n = (MT(h) == e && h != 0 -> MARK(e, MB(h), at, (all < MIN -> 1 : 0)) : h);
# endif
		if :: n != h -> STEP(if :: mark == h -> mark = n :: else fi) :: else fi;
# ifdef LATEMARK
		if
		:: kind == BAD -> STEP(mark = MARK(e, at, at, 1))
		:: else
		fi
# endif
#else
		skip
#endif
	fi;
next:	c = 0; h = 0; n = 0; bad = 0; all = 0; newest = 0; at = 0; i = 0; ok = 0
	od;
dead:	atomic { ndone++ }
}

/* closes the breaker when it is open (a probe succeeded); epoch 0 is also opened by hand, so that few steps reach a close */
proctype closer()
{
	byte e, i; bit ok;
	STEP(if :: E == 0 -> E = 1 :: else fi);            /* the trip of epoch 0, by somebody */
	STEP(e = E);
	if :: !(e & 1) -> goto dead :: else fi;
#if WIPE == 1
	i = 0;
	do :: i < NB -> STEP(cell[i] = 0); i++ :: else -> break od;
#endif
	STEP(if :: E == e -> E = e + 1; ok = 1 :: else -> ok = 0 fi);
#if WIPE == 2
	i = 0;
	if :: ok -> do :: i < NB -> STEP(cell[i] = 0); i++ :: else -> break od :: else fi;
#endif
dead:	atomic { ndone++ }
}

#ifdef GEOM
proctype reload()
{
	do
	:: atomic { G < GEOM && ndone < NR + NC -> G++ }
	:: ndone == NR + NC -> break
	od
}
#endif

proctype clock()
{
	do
	:: atomic { sl <= TMAX && ndone < NR + NC -> sl++ }
#ifdef STEPBACK
	:: atomic { sl > 1 && nback == 0 && ndone < NR + NC -> sl = 1; nback = 1 }
#endif
	:: ndone == NR + NC -> break
	od
}

/* Looks at what is left when all have finished or died. */
proctype auditor()
{
	byte i, all, want, bad, good, p, newest, wantnewest; short c;
	atomic {
	ndone == NR + NC ->
	if
	:: (E & 1) -> skip
	:: else ->
		p = (E + G) & 15; newest = sl; wantnewest = sl;
		do
		:: i < CELLS -> c = cell[i]; if :: LIVE(c,p,sl) && CS(c) > newest -> newest = CS(c) :: else fi; i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < CELLS -> c = cell[i]; if :: LIVE(c,p,sl) && CS(c) + NB > newest && CS(c) <= newest -> all = all + CN(c) :: else fi; i++
		:: else -> break
		od;
		i = 1;
		do
		:: i < SLICES -> if :: i < sl + 2 * NB && i > wantnewest && (REC(BAD,p,i) > 0 || KINDS > 1 && REC(KINDS-1,p,i) > 0) -> wantnewest = i :: else fi; i++
		:: else -> break
		od;
		i = 1;
		do
		:: i < SLICES ->
			if
			:: i <= wantnewest && i + NB > wantnewest ->
				bad = bad + REC(BAD,p,i);
#ifdef RATE
				good = good + REC(GOOD,p,i)
#endif
			:: else
			fi; i++
		:: else -> break
		od;
		want = bad + good;
		assert(all <= want);                                    /* [14] clean */
		assert(all == want || ncrash > 0 && WIPE != 0);           /* [39] no increment is lost */
		/* [23] [27] whoever completes the threshold trips (no slice has expired when TMAX < NB, no lap is ahead) */
		assert(ncrash > 0 || TMAX >= NB || !HOLDS(bad, want))
	fi
	}
}

init {
	byte i;
	atomic {
		do :: i < NR -> run reporter(); i++ :: else -> break od;
		i = 0;
		do :: i < NC -> run closer(); i++ :: else -> break od;
		run clock();
#ifdef GEOM
		run reload();
#endif
		run auditor()
	}
}

#elif defined(RING)
/*
 * count window part (spin -DRING): the last NSLOT calls, two processes' CASes per outcome: claim a position, write the slot.
 * head = {epoch, position}; one word = {epoch, slots}: 0 empty, 1 success, 2 failure.
 * A reporter that dies or stalls between claim and write costs one outcome; nothing of another epoch is ever seen.
 * Mutants:  DIRTY  a slot is written without emptying the other slots of an older epoch
 *           ALONE  an outcome is written without a position of its own: lost
 */
#ifndef NR
#define NR 3
#endif
#ifndef CYCLES
#define CYCLES 2
#endif
#ifndef CRASH
#define CRASH 0
#endif
#define NSLOT 2
#define HE(h) ((h) & 15)
#define HP(h) ((h) >> 4)
#define MKHEAD(e,p) ((e) | ((p) << 4))
#define SLOT(w,i) (((w) >> (4 + 2*(i))) & 3)
#define PUT(w,i,v) (((w) & ~(3 << (4 + 2*(i)))) | ((v) << (4 + 2*(i))))
#define STEP(...)  if :: atomic { __VA_ARGS__ } :: atomic { ncrash < CRASH -> ncrash++; goto dead } fi

byte E = 0; short head = 0; short word = 0;
byte ndone = 0, ncrash = 0;
byte claims[8], fails[8];

proctype reporter()
{
	byte e, k, v, pos, sum; short h, w, n; bit ok;
	do
	:: k >= CYCLES -> break
	:: else -> k++;
		STEP(e = E);
		if :: (e & 1) -> goto next :: else fi;
		if :: v = 1 :: v = 2 fi;
again:		STEP(ok = (E == e));
		if :: !ok -> goto next :: else fi;
		STEP(h = head);
		if
		:: ((HE(h) - e) & 15) > 0 && ((HE(h) - e) & 15) < 8 -> goto next
		:: HE(h) == e -> pos = HP(h); n = MKHEAD(e, pos + 1)
		:: else -> pos = 0; n = MKHEAD(e, 1)
		fi;
#ifdef ALONE
		STEP(head = n; claims[e]++);
#else
		STEP(if :: head == h -> head = n; ok = 1; claims[e]++ :: else -> ok = 0 fi);
		if :: !ok -> goto again :: else fi;
#endif
write:		STEP(w = word);
		if
		:: ((HE(w) - e) & 15) > 0 && ((HE(w) - e) & 15) < 8 -> goto next
		:: HE(w) == e -> n = PUT(w, pos % NSLOT, v)
#ifdef DIRTY
		:: else -> n = PUT((w & ~15) | e, pos % NSLOT, v)
#else
		:: else -> n = PUT(e, pos % NSLOT, v)
#endif
		fi;
		STEP(if :: word == w -> word = n; ok = 1; fails[e] = fails[e] + (v == 2 -> 1 : 0) :: else -> ok = 0 fi);
		if :: !ok -> goto write :: else fi;
		STEP(h = head);
		if :: HE(h) != e -> goto next :: else fi;         /* a new epoch has begun */
		STEP(w = word);
		if
		:: HE(w) == e ->
			sum = (SLOT(w,0) == 2 -> 1 : 0) + (SLOT(w,1) == 2 -> 1 : 0);
			assert(sum <= fails[e]);
			if :: sum >= 2 -> STEP(if :: E == e -> E = e + 1 :: else fi) :: else fi
		:: else
		fi;
next:		skip
	od;
dead:	atomic { ndone++ }
}

proctype closer() { byte e, k; do :: k < 2 -> k++; atomic { if :: (E & 1) || E == 0 -> E = E + 1 :: else fi } :: ndone == NR -> break od }

proctype auditor()
{
	byte total, want;
	atomic { ndone == NR ->
		if
		:: (E & 1) || HE(word) != E -> skip
		:: else ->
			total = (SLOT(word,0) > 0 -> 1 : 0) + (SLOT(word,1) > 0 -> 1 : 0);
			want = (claims[E] < NSLOT -> claims[E] : NSLOT);
			assert(total <= want);
			assert(total + ncrash >= want)          /* [46] each crash costs one outcome at most */
		fi }
}
init { byte i; atomic { do :: i < NR -> run reporter(); i++ :: else -> break od; run closer(); run auditor() } }

#else
/*
 * the state machine, as atomic loads and compare-and-swaps of one word:
 *   CLOSED {since} | OPEN {until} | HALF {in_flight, ok, failed, lease}, all with level and epoch.
 *
 * Options:
 *   NW workers, K calls a worker, CRASH max. crashes, RESETS max. manual resets, TMAX clock ticks,
 *   PROBES SUCC CONC   the half-open rule
 *   MIXED              worker 0 and the auditor use probes=1 successes=1 concurrent=1, the others the rule above
 *   MODES              each acquire sees any of auto / shadow (forced_closed) / forced_open
 *   STEPBACK           the clock may once go back to 0
 *   LATEFAIL           a report after the lease is refused (re-opens) instead of counted: sound too
 * Mutants:
 *   NOLEASE            an acquire does not end a round whose lease is over
 *   NOVERDICT          an acquire does not end a round that is decided
 *   NOEPOCH            a report does not look at the epoch
 *   NOCONC             an acquire does not look at `concurrent`
 *   DUP                a worker may report a copy of its permit: counted twice (documented: keep one)
 *   TWOWORD            the state in two words, S = {open, level, epoch, time}, P = {epoch, in_flight, ok, failed, lease}; with
 *     HELP             acquire and report first complete a verdict that P already holds: still lets too many in
 *     TAGORDER         ... and P is only overwritten when its tag is older than the epoch that was read: sound, but why
 * A worker may die between any two shared steps and never returns.
 *
 * Checked:
 *   over-admission     per epoch: probes in flight <= CONC, admitted - neutral <= PROBES
 *   stale              a report moves the state only in its permit's epoch (ghost: assert at every successful CAS on S)
 *   one closer         at most one transition leaves an epoch
 *   at most once       a permit's outcome is counted at most once
 *   no wedge           when all workers have finished or died (so: from every reachable configuration), an auditor that
 *                      waits and calls is admitted within 3 tries and reaches CLOSED within MAXTRY tries
 *   one first probe    a half-open round begins once (so its event is sent once)
 */
#ifdef NOLEASE
#define LOST(s,t) false
#else
#define LOST(s,t) (HI(s) > 0 && (t) >= HL(s))
#endif
#ifdef NOVERDICT
#define CLOSES(s) false
#define REOPENS(s) false
#else
#define CLOSES(s) (HO(s) >= su)
#define REOPENS(s) (HF(s) > pr - su)
#endif
#ifdef NOCONC
#define ROOM(s) (HI(s) < 3)
#else
#define ROOM(s) (HI(s) < co)
#endif
#ifndef NW
#define NW 2
#endif
#ifndef K
#define K 2
#endif
#ifndef CRASH
#define CRASH 1
#endif
#ifndef RESETS
#define RESETS 0
#endif
#ifndef TMAX
#define TMAX 3
#endif
#ifndef PROBES
#define PROBES 2
#endif
#ifndef SUCC
#define SUCC 2
#endif
#ifndef CONC
#define CONC 1
#endif
#define COOL   1          /* cooldown, ticks */
#define LEASE  1
#define BIG    2          /* the auditor waits this long between tries: >= COOL and >= LEASE */
#define MAXTRY 10

#define CLOSED 0
#define OPEN   1
#define HALF   2

#define NONE   0
#define PLAIN  1
#define PROBE  2
#define BYPASS 3

#define O_OK   0
#define O_FAIL 1
#define O_NEUT 2

/* word S: state 2 | epoch 5 | level 2 | payload */
#define ST(s)  ((s) & 3)
#define EP(s)  (((s) >> 2) & 31)
#define LV(s)  (((s) >> 7) & 3)
#define T(s)   (((s) >> 9) & 63)
#define MK(st,e,l,t)  ((st) | ((e) << 2) | ((l) << 7) | ((t) << 9))
/* payload of HALF: in_flight 2 | ok 2 | failed 2 | lease 6 */
#define HI(s)  (((s) >> 9) & 3)
#define HO(s)  (((s) >> 11) & 3)
#define HF(s)  (((s) >> 13) & 3)
#define HL(s)  (((s) >> 15) & 63)
#define MKH(e,l,i,o,f,d)  (HALF | ((e) << 2) | ((l) << 7) | ((i) << 9) | ((o) << 11) | ((f) << 13) | ((d) << 15))
#define UP(l)  ((l) < 3 -> (l) + 1 : 3)
/* word P (TWOWORD): tag 5 | in_flight 2 | ok 2 | failed 2 | lease 6 */
#define PT(p)  ((p) & 31)
#define PI(p)  (((p) >> 5) & 3)
#define PO(p)  (((p) >> 7) & 3)
#define PF(p)  (((p) >> 9) & 3)
#define PL(p)  (((p) >> 11) & 63)
#define MKP(e,i,o,f,d)  ((e) | ((i) << 5) | ((o) << 7) | ((f) << 9) | ((d) << 11))

int S = 0, P = 0;
byte now = 0;
byte ndone = 0, ncrash = 0, nreset = 0, nback = 0;

/* ghosts */
byte holders[32];         /* probes admitted in epoch e and not reported */
byte taken[32];           /* probes admitted in epoch e, less the neutral ones */
byte left[32];            /* transitions that left epoch e */
byte firsts[32];          /* admissions that began a half-open round of epoch e */

#define STEP(...)  if :: atomic { __VA_ARGS__ } :: atomic { ncrash < CRASH -> ncrash++; goto dead } fi
#define MAXCONC (CONC)
#define MAXPROBES (PROBES)

/* CAS on S that changes the epoch: from s to n */
/* [8] one transition leaves an epoch; a round begins once */
#define TRANS(s,n)  if :: S == s -> S = n; left[EP(s)]++; assert(left[EP(s)] == 1); ok = 1 :: else -> ok = 0 fi
#define FIRST(e)    firsts[e]++; assert(firsts[e] == 1)
/* [9], and between two rules [43] */
#define ADMIT(e)    holders[e]++; taken[e]++; assert(holders[e] <= MAXCONC); assert(taken[e] <= MAXPROBES)

proctype worker(byte id)
{
	int s, p, n;
	byte t, k, e, kind, out, counted, mode, again;
	byte pr = PROBES, su = SUCC, co = CONC;
	bit ok;
#ifdef MIXED
	if :: id == 0 -> pr = 1; su = 1; co = 1 :: else fi;
#endif
	do
	:: k >= K -> break
	:: else ->
		k++; counted = 0; kind = NONE; again = 0;
		mode = 0;
#ifdef MODES
		if :: mode = 0 :: mode = 1 /* shadow */ :: mode = 2 /* forced open */ fi;
#endif
		STEP(t = now);                               /* the caller reads its clock; it may be stale from here on */
		if :: mode == 2 -> goto next :: else fi;      /* forced_open rejects before it touches the state */
acquire:
		STEP(s = S);
		if
		:: ST(s) == CLOSED -> kind = PLAIN; e = EP(s)
		:: ST(s) == OPEN && t < T(s) -> kind = NONE
#ifdef TWOWORD
		:: ST(s) == OPEN && t >= T(s) ->
			STEP(p = P);
			if
			:: PT(p) != EP(s) ->
# ifdef TAGORDER
				if
				:: ((EP(s) - PT(p)) & 31) > 16 -> goto acquire    /* P is newer than what I read of S */
				:: else
				fi;
# endif
				STEP(if :: P == p -> P = MKP(EP(s),1,0,0,t+LEASE); ok = 1; FIRST(EP(s)); ADMIT(EP(s)) :: else -> ok = 0 fi);
				if :: ok -> kind = PROBE; e = EP(s) :: else -> goto acquire fi
			:: PT(p) == EP(s) ->
				if
# ifdef HELP
				:: PO(p) >= su -> STEP(TRANS(s, MK(CLOSED,EP(s)+1,LV(s),t))); goto acquire
				:: PO(p) < su && PF(p) > pr - su -> STEP(TRANS(s, MK(OPEN,EP(s)+1,UP(LV(s)),t+COOL))); goto acquire
				:: PO(p) < su && PF(p) <= pr - su && PI(p) > 0 && t >= PL(p) ->
# else
				:: PI(p) > 0 && t >= PL(p) ->
# endif
					STEP(TRANS(s, MK(OPEN,EP(s)+1,UP(LV(s)),t+COOL)));      /* lost probe: re-open */
					if :: ok -> kind = NONE :: else -> goto acquire fi
				:: else ->
					if
					:: PI(p) < co && PI(p)+PO(p)+PF(p) < pr ->
						STEP(if :: P == p -> P = MKP(EP(s),PI(p)+1,PO(p),PF(p),t+LEASE); ok = 1; ADMIT(EP(s)) :: else -> ok = 0 fi);
						if :: ok -> kind = PROBE; e = EP(s) :: else -> goto acquire fi
					:: else -> kind = NONE
					fi
				fi
			fi
#else
		:: ST(s) == OPEN && t >= T(s) ->
			STEP(if :: S == s -> S = MKH(EP(s),LV(s),1,0,0,t+LEASE); ok = 1; FIRST(EP(s)); ADMIT(EP(s)) :: else -> ok = 0 fi);
			if :: ok -> kind = PROBE; e = EP(s) :: else -> goto acquire fi
		:: ST(s) == HALF ->
			if
			:: CLOSES(s) ->
				STEP(TRANS(s, MK(CLOSED,EP(s)+1,LV(s),t)));
				if :: ok -> kind = PLAIN; e = (EP(s)+1) & 31 :: else -> goto acquire fi
			:: !CLOSES(s) && (REOPENS(s) || LOST(s,t)) ->
				STEP(TRANS(s, MK(OPEN,EP(s)+1,UP(LV(s)),t+COOL)));
				if :: ok -> kind = NONE :: else -> goto acquire fi
			:: else ->
				if
				:: ROOM(s) && HI(s)+HO(s)+HF(s) < pr ->
					STEP(if :: S == s -> S = MKH(EP(s),LV(s),HI(s)+1,HO(s),HF(s),t+LEASE); ok = 1; ADMIT(EP(s)) :: else -> ok = 0 fi);
					if :: ok -> kind = PROBE; e = EP(s) :: else -> goto acquire fi
				:: else -> kind = NONE
				fi
			fi
#endif
		fi;
		if
		:: kind == NONE && mode == 1 -> kind = BYPASS; e = EP(s)   /* shadow: admitted, holds no slot */
		:: else
		fi;
		if :: kind == NONE -> goto next :: else fi;

		/* the call runs */
		if :: out = O_OK :: out = O_FAIL :: out = O_NEUT fi;
		STEP(t = now);
report:
		if :: kind == BYPASS -> goto reported :: else fi;           /* counted in totals only */
		STEP(s = S);
#ifndef NOEPOCH
		if :: EP(s) != e -> goto reported :: else fi;               /* stale */
#endif
		if
		:: kind == PLAIN ->
			/* the window is another model; here a failure may or may not trip */
			if
			:: out == O_FAIL && ST(s) == CLOSED ->
				if
				:: STEP(TRANS(s, MK(OPEN,EP(s)+1,UP(LV(s)),t+COOL)))
				:: skip
				fi
			:: else
			fi
		:: kind == PROBE ->
#ifdef TWOWORD
			STEP(p = P);
			if
			:: PT(p) != e || PI(p) == 0 -> goto reported             /* stale, or reported before */
			:: else
			fi;
			n = MKP(e, PI(p)-1, PO(p)+(out==O_OK -> 1 : 0), PF(p)+(out==O_FAIL -> 1 : 0), PL(p));
			STEP(if :: P == p -> P = n; ok = 1; counted++; holders[e]--; if :: out == O_NEUT -> taken[e]-- :: else fi :: else -> ok = 0 fi);
			if :: !ok -> goto report :: else fi;
			if
			:: PO(n) >= su -> STEP(TRANS(s, MK(CLOSED,e+1,LV(s),t)))
			:: PO(n) < su && PF(n) > pr - su -> STEP(TRANS(s, MK(OPEN,e+1,UP(LV(s)),t+COOL)))
			:: else
			fi
#else
			if
			:: ST(s) != HALF || HI(s) == 0 -> goto reported          /* reported before */
			:: else
			fi;
# ifdef LATEFAIL
			if :: t >= HL(s) -> STEP(TRANS(s, MK(OPEN,e+1,UP(LV(s)),t+COOL))); if :: ok -> goto reported :: else -> goto report fi :: else fi;
# endif
			n = MKH(e, LV(s), HI(s)-1, HO(s)+(out==O_OK -> 1 : 0), HF(s)+(out==O_FAIL -> 1 : 0), HL(s));
			if
			:: HO(n) >= su -> n = MK(CLOSED,e+1,LV(s),t)
			:: HO(n) < su && HF(n) > pr - su -> n = MK(OPEN,e+1,UP(LV(s)),t+COOL)
			:: else
			fi;
			STEP(if
			     :: S == s -> S = n; ok = 1; counted++; holders[e]--;
				if :: out == O_NEUT -> taken[e]-- :: else fi;
				if :: EP(n) != e -> left[e]++; assert(left[e] == 1) :: else fi
			     :: else -> ok = 0 fi);
			if :: !ok -> goto report :: else fi
#endif
		fi;
reported:
		assert(counted <= 1);
#ifdef DUP
		if :: again == 0 && kind == PROBE -> again = 1; goto report :: true fi;
#endif
next:
		skip
	od;
dead:
	atomic { ndone++ }
}

proctype clock()
{
	do
	:: atomic { ndone < NW && now < TMAX -> now++ }
#ifdef STEPBACK
	:: atomic { ndone < NW && nback == 0 && now > 0 -> nback = 1; now = 0 }
#endif
	:: atomic { ndone == NW -> break }
	od
}

#if RESETS > 0
proctype resetter()                                       /* manual reset to CLOSED, at any time */
{
	int s; bit ok;
	do
	:: atomic { nreset < RESETS && ndone < NW -> s = S; nreset++ };
	   atomic { TRANS(s, MK(CLOSED,EP(s)+1,0,now)) }
	:: ndone == NW -> break
	od
}
#endif

/* Runs alone when every worker has finished or died: is any configuration they leave behind a wedge? */
proctype auditor()
{
	int s, p; byte tries, e; bit admitted, adm1, ok;
	byte pr = PROBES, su = SUCC, co = CONC;
#ifdef MIXED
	pr = 1; su = 1; co = 1;
#endif
	atomic {
	ndone == NW ->
	do
	:: S >= 0 && ST(S) == CLOSED -> break
	:: else ->
		tries++;
		assert(tries <= MAXTRY);                          /* [11] [39] CLOSED is reached */
		now = now + BIG;
		admitted = 0;
		again:
		s = S;
		if
		:: ST(s) == CLOSED -> admitted = 1; goto done
		:: ST(s) == OPEN && now < T(s) -> goto done
#ifdef TWOWORD
		:: ST(s) == OPEN && now >= T(s) ->
			p = P;
			if
			:: PT(p) != EP(s) -> P = MKP(EP(s),1,0,0,now+LEASE); admitted = 1
			:: else ->
				if
# ifdef HELP
				:: PO(p) >= su -> S = MK(CLOSED,EP(s)+1,LV(s),now); goto again
				:: PO(p) < su && PF(p) > pr - su -> S = MK(OPEN,EP(s)+1,UP(LV(s)),now+COOL); goto done
				:: PO(p) < su && PF(p) <= pr - su && PI(p) > 0 && now >= PL(p) -> S = MK(OPEN,EP(s)+1,UP(LV(s)),now+COOL); goto done
# else
				:: PI(p) > 0 && now >= PL(p) -> S = MK(OPEN,EP(s)+1,UP(LV(s)),now+COOL); goto done
# endif
				:: else ->
					if
					:: PI(p) < co && PI(p)+PO(p)+PF(p) < pr -> P = MKP(EP(s),PI(p)+1,PO(p),PF(p),now+LEASE); admitted = 1
					:: else -> goto done
					fi
				fi
			fi;
			/* and it reports success at once */
			if
			:: admitted ->
				p = P; P = MKP(EP(s),PI(p)-1,PO(p)+1,PF(p),PL(p));
				if :: PO(P) >= su -> S = MK(CLOSED,EP(s)+1,LV(s),now) :: else fi
			:: else
			fi
#else
		:: (ST(s) == OPEN && now >= T(s)) || ST(s) == HALF ->
			if
			:: ST(s) == OPEN -> S = MKH(EP(s),LV(s),1,0,0,now+LEASE); admitted = 1
			:: ST(s) == HALF && CLOSES(s) -> S = MK(CLOSED,EP(s)+1,LV(s),now); goto again
			:: ST(s) == HALF && !CLOSES(s) && (REOPENS(s) || LOST(s,now)) ->
				S = MK(OPEN,EP(s)+1,UP(LV(s)),now+COOL); goto done
			:: else ->
				if
				:: HI(s) < co && HI(s)+HO(s)+HF(s) < pr -> S = MKH(EP(s),LV(s),HI(s)+1,HO(s),HF(s),now+LEASE); admitted = 1
				:: else -> goto done
				fi
			fi;
			if
			:: admitted ->
				s = S; S = MKH(EP(s),LV(s),HI(s)-1,HO(s)+1,HF(s),HL(s));
				if :: HO(S) >= su -> S = MK(CLOSED,EP(s)+1,LV(s),now) :: else fi
			:: else
			fi
#endif
		fi;
		done:
		if :: admitted -> adm1 = 1 :: else fi;
		assert(adm1 || tries < 3)                         /* [11] [39] admitted within 3 tries */
	od
	}
}

init {
	byte i;
	atomic {
		/* start CLOSED or already OPEN(until 1) */
		if :: S = MK(CLOSED,1,0,0) :: S = MK(OPEN,1,1,1) fi;
		P = MKP(0,0,0,0,0);
		do :: i < NW -> run worker(i); i++ :: else -> break od;
		run clock();
#if RESETS > 0
		run resetter();
#endif
		run auditor()
	}
}

#endif
