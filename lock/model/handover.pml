/* How a lock on one Redis passes from holder to waiter, for spin. README.md tells how to run it.
 *
 * What is modelled: the lock and its record on one Redis, as ../scripts/acquire.lua and release.lua
 * keep them, and attempts to acquire it, in one process or two. The first attempt holds the lock
 * when it begins. Those of a process stand in its line, and only the first of a line asks Redis
 * and is given turns (../line.go, handover.go). Every step below is one run of a script, one
 * decision of a client, or one thing that happens to either.
 *
 * What is abstracted, and why that hides nothing:
 *
 * Calls. What a client has sent is run at any moment, or never: an acquire ASKRUNS times at most, and a
 *   release RUNS times: also after
 *   the client gave up, and by both of a call and its repetition. A reply is read at any
 *   moment, or lost.
 * Time. A lock that nobody relies on may expire at any moment. One that a holder relies on doesn't:
 *   that is the assumption of all leases. Who was told that it has the lock takes it only if it
 *   has not expired: it reckons from a moment before its time began. A row of grants may end
 *   with any release, and a reservation at any moment.
 * The line in Redis. A release offers the lock to any of the processes in it, not to the first. One
 *   that doesn't hear the message may be passed by, or the message be lost.
 * Looks. The first in line may ask at any moment. It does so with a value of its own at most once.
 * Tokens. Each grant has its own, so two holders at once are what is looked for, and also one value
 *   that reaches two waiters.
 * Not in it: MinHold, locks of several keys, other libraries' clients.
 *
 * The bounds: -DATTEMPTS, -DOTHERS (how many of the last are in a second process), -DGIVES (hand-overs
 * in all), -DRUNS, -DASKRUNS.
 *
 * What is checked:
 *   -DEXCLUSION   there is at most one holder, and Redis has its value.
 *   -DONCE        no value is told to two waiters.
 *   -DREACH=...   that this is not so. It must be so in some run.
 *
 * The variants, each of which must be found to be broken:
 *   -DOLD         as of commit f1f8dd4: a release has one value for the next holder, whether it is granted
 *                 by the reply or offered by a message. With -DNORETRY a client takes a lost reply for
 *                 the end, and tells the value to the next; else it only repeats the call.
 *   -DALLTELL     each answer to a release tells the next waiter, not the first alone.
 *   -DHEARTWICE   with -DFORGETFUL: a message is heard by two subscriptions of one process.
 * And what the code has against calls that are run twice after the next hand-over, one rule left out each:
 *   -DFORGETFUL   a process doesn't remember of which values it has heard.
 *   -DNOTOKEN     a release doesn't name the token of the grant that it ends.
 */
#ifdef OLD
#define FORGETFUL
#define NOTOKEN
#define REPLACED(v, w) ((w) != 0)
#else
#define REPLACED(v, w) ((w) != 0 && (w) != (v))
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifndef OTHERS
#define OTHERS 0
#endif
#ifndef GIVES
#define GIVES 3
#endif
#ifndef RUNS
#define RUNS 2
#endif
#ifndef ASKRUNS
#define ASKRUNS RUNS
#endif

/* The values: 0 is none; 1 to ATTEMPTS are drawn by the attempts, and two by each hand-over. */
#define OWN(a) ((a)+1)
#define GRANTED(k) (ATTEMPTS + 1 + 2*(k))
#ifdef OLD
#define OFFERED(k) GRANTED(k)
#else
#define OFFERED(k) (ATTEMPTS + 2 + 2*(k))
#endif
#define PROCESS(a) ((a) >= ATTEMPTS - OTHERS)

/* Redis. */
byte lock;              /* its value */
byte by;                /* the record's value */
bit reserved;           /* the record is a reservation */
bit line[2];            /* the process is in the line of waiters */

/* The attempts. */
#define WAITS 0
#define ASKS 1          /* and waits for the reply */
#define HOLDS 2
#define GONE 3
byte phase[ATTEMPTS];
byte value[ATTEMPTS];   /* it asked for the lock with that, or holds it */
byte turn[ATTEMPTS];    /* it may use this value */
byte how[ATTEMPTS];     /* 0: ask with it; 1: granted; 2: offered, and good as it is or to ask with */
byte asks[ATTEMPTS];    /* how often its call may still be run */
byte told[ATTEMPTS];    /* what Redis answered: 1: granted, 2: held; 0: nothing */
bit asked[ATTEMPTS];    /* it has used its own value */
bit sure[ATTEMPTS];     /* it knows the token of the value that it asks with, or holds, from the turn */

/* The hand-overs. */
byte gives[GIVES];      /* the value that it releases; 0: not used yet */
bit from[GIVES];        /* the process */
bit own[GIVES];         /* the call names the caller's process as the next */
bit known[GIVES];       /* the call names the token of the grant that it ends */
bit stale[GIVES];       /* and the value was granted again since: with another token */
byte runs[GIVES];
byte reply[GIVES];      /* 1: granted, 2: anything else; 0: none */
bit settled[GIVES];
byte message[GIVES];    /* 1, 2: on the way to process 0, 1; */
bit whole[GIVES];       /* it has a token */

short expired;          /* a bit for each value whose lock has expired */
short met;          /* a bit for each value that was told to a waiter */

short known_to[2];      /* a bit for each value that a process has heard of */

byte i, j, tmp;         /* inside of a step only */

#define BIT(v) (1 << (v))
/* The first in the line of a process; ATTEMPTS if there is none. */
#define STANDS(a, p) (PROCESS(a) == (p) && phase[a] < HOLDS)
#if ATTEMPTS == 3
#define FIRSTOF(p) (STANDS(0, p) -> 0 : (STANDS(1, p) -> 1 : (STANDS(2, p) -> 2 : 3)))
#else
#define FIRSTOF(p) (STANDS(0, p) -> 0 : (STANDS(1, p) -> 1 : (STANDS(2, p) -> 2 : (STANDS(3, p) -> 3 : 4))))
#endif
#define WAITED(p) (FIRSTOF(p) < ATTEMPTS)

/* Begins to release a value. If the bound is met nobody does, and the lock expires. */
inline give(p, v, k) {
	j = 0;
	do
	:: j < GIVES && gives[j] != 0 -> j++
	:: else -> break
	od;
	if
	:: j < GIVES ->
		gives[j] = v;
		from[j] = p;
		own[j] = WAITED(p);
		runs[j] = RUNS;
#ifndef NOTOKEN
		known[j] = k;
#endif
		printf("   (hand-over %d releases value %d)\n", j, v)
	:: else
	fi;
	j = 0
}

/* A value is granted, or reserved, once more: the releases of its earlier grant name an older token. */
inline regrant(v) {
	j = 0;
	do
	:: j < GIVES ->
		if :: gives[j] == v && known[j] -> stale[j] = 1 :: else fi;
		j++
	:: else -> break
	od;
	j = 0
}

/* Gives a turn to the first in the line of a process. What it was told before is passed on, unless it is the same,
 * and so is a turn that nobody waits for. */
inline tell(p, v, h) {
	i = FIRSTOF(p);
	if
	:: i < ATTEMPTS ->
#ifdef ONCE
		assert(!(met & BIT(v)));    /* a value reaches one waiter */
		met = met | BIT(v);
#endif
		tmp = turn[i];
		turn[i] = v;
		printf("   (attempt %d is told value %d)\n", i, v);
		if :: REPLACED(v, tmp) -> give(p, tmp, how[i] != 0) :: else fi;
		how[i] = h
	:: else -> give(p, v, h != 0)
	fi;
	i = 0;
	tmp = 0
}

inline leave(a) {
	if :: turn[a] != 0 -> give(PROCESS(a), turn[a], how[a] != 0) :: else fi;
	turn[a] = 0;
	how[a] = 0
}

/* ---- Redis ---- */

/* acquire.lua */
inline run_acquire(a, reservation_over) {
	d_step {
		asks[a] > 0 && value[a] != 0 && (!reservation_over || lock == 0 && reserved && by != value[a]) ->
		asks[a]--;
		if
#ifndef OLD
		:: lock == 0 && by == value[a] && !reserved ->
			printf("Redis refuses attempt %d, whose value %d it has granted before\n", a, value[a]);
			if :: phase[a] == ASKS -> told[a] = 2 :: else fi
		:: lock == value[a] || lock == 0 && (!reserved || by == value[a] || reservation_over) && (by != value[a] || reserved) ->
			line[PROCESS(a)] = 0;
#else
		:: lock == value[a] || lock == 0 && (!reserved || by == value[a] || reservation_over) ->
#endif
			lock = value[a];
			by = value[a];
			reserved = 0;
			if :: phase[a] == ASKS -> told[a] = 1 :: else fi;
			printf("Redis grants the lock to attempt %d, with value %d\n", a, value[a])
		:: else ->
			line[PROCESS(a)] = 1;
			if :: phase[a] == ASKS -> told[a] = 2 :: else fi;
			printf("Redis refuses attempt %d the lock, and puts its process in line\n", a)
		fi
	}
}

/* release.lua: HAS tells whether the lock or its reservation is the value's. */
#define HAS(k) (!stale[k] && (lock == gives[k] || lock == 0 && by == gives[k] && reserved))

inline run_again(k) {
	d_step {
		gives[k] != 0 && runs[k] > 0 && !HAS(k) ->
		runs[k]--;
		if
#ifdef OLD
		:: lock == GRANTED(k) && by == GRANTED(k) && own[k] && !reserved -> reply[k] = 1
#else
		:: lock == GRANTED(k) && by == GRANTED(k) -> reply[k] = 1
#endif
		:: else -> reply[k] = 2
		fi;
		printf("Redis runs release %d of value %d, which has not the lock: reply %d\n", k, gives[k], reply[k])
	}
}

inline run_rotate(k) {
	d_step {
		gives[k] != 0 && runs[k] > 0 && HAS(k) && own[k] ->
		runs[k]--;
		lock = GRANTED(k);
		by = GRANTED(k);
		reserved = 0;
		regrant(GRANTED(k));
		reply[k] = 1;
		printf("Redis runs release %d of value %d: granted to the own process, with value %d\n", k, gives[k], GRANTED(k))
	}
}

inline run_free(k) {
	d_step {
		gives[k] != 0 && runs[k] > 0 && HAS(k) ->
		runs[k]--;
		lock = 0;
#ifndef OLD
		reserved = 0;
#endif
		reply[k] = 2;
		printf("Redis runs release %d of value %d: nobody hears of it, the lock is free\n", k, gives[k])
	}
}

#ifdef OLD
#define MAY_OFFER(k, p) line[p]
#else
#define MAY_OFFER(k, p) (line[p] && (p != from[k] || own[k]))
#endif

inline run_offer(k, p, over) {
	d_step {
		gives[k] != 0 && runs[k] > 0 && HAS(k) && (over || !own[k]) && MAY_OFFER(k, p) ->
		runs[k]--;
		line[p] = 0;
		message[k] = p + 1;
		whole[k] = !over;
		lock = (over -> 0 : OFFERED(k));
		by = OFFERED(k);
		reserved = over;
		regrant(OFFERED(k));
		reply[k] = 2;
		printf("Redis runs release %d of value %d: value %d is published to process %d, reserved only: %d\n", k, gives[k], OFFERED(k), p, over)
	}
}

#if ATTEMPTS == 3
#define RELIES(v) (phase[0] == HOLDS && value[0] == v || phase[1] == HOLDS && value[1] == v || phase[2] == HOLDS && value[2] == v)
#else
#define RELIES(v) (phase[0] == HOLDS && value[0] == v || phase[1] == HOLDS && value[1] == v || phase[2] == HOLDS && value[2] == v || phase[3] == HOLDS && value[3] == v)
#endif
inline expire() {
	d_step {
		lock != 0 && !RELIES(lock) ->
		printf("the lock with value %d expires\n", lock);
		expired = expired | BIT(lock);
		lock = 0
	}
}

/* ---- Clients ---- */

inline holds(a, v) {
	printf("attempt %d has the lock, with value %d\n", a, v);
	phase[a] = HOLDS;
	value[a] = v;
	told[a] = 0;
	leave(a);
#ifdef EXCLUSION
	assert(lock == v);
	assert((phase[0] == HOLDS) + (phase[1] == HOLDS) + (phase[2] == HOLDS)
#if ATTEMPTS == 4
		+ (phase[3] == HOLDS)
#endif
		== 1);
#endif
#ifdef REACH
	assert(!(REACH));
#endif
}

/* The first in line asks with a value of its own, or with the one that it was told. */
inline ask(a) {
	d_step {
		phase[a] == WAITS && FIRSTOF(PROCESS(a)) == a && turn[a] == 0 && !asked[a] ->
		asked[a] = 1;
		phase[a] = ASKS;
		value[a] = OWN(a);
		sure[a] = 0;
		asks[a] = ASKRUNS;
		printf("attempt %d asks for the lock, with value %d\n", a, value[a])
	}
}

inline ask_with_turn(a) {
	d_step {
		phase[a] == WAITS && FIRSTOF(PROCESS(a)) == a && turn[a] != 0 && how[a] != 1 ->
		phase[a] = ASKS;
		value[a] = turn[a];
		sure[a] = how[a] == 2;
		turn[a] = 0;
		how[a] = 0;
		asks[a] = ASKRUNS;
		printf("attempt %d asks for the lock, with value %d that it was told\n", a, value[a])
	}
}

inline take(a) {
	d_step {
		phase[a] == WAITS && FIRSTOF(PROCESS(a)) == a && turn[a] != 0 && how[a] != 0 ->
		if
		:: expired & BIT(turn[a]) ->
			printf("attempt %d finds that what it was granted is over\n", a);
			phase[a] = GONE;
			leave(a)
		:: else ->
			tmp = turn[a];
			turn[a] = 0;
			how[a] = 0;
			sure[a] = 1;
			holds(a, tmp);
			tmp = 0
		fi
	}
}

inline answered(a) {
	d_step {
		phase[a] == ASKS && told[a] != 0 ->
		if
		:: told[a] == 1 && !(expired & BIT(value[a])) -> holds(a, value[a])
		:: told[a] == 1 && (expired & BIT(value[a])) ->
			phase[a] = GONE;
			give(PROCESS(a), value[a], sure[a]);
			leave(a)
		:: else -> phase[a] = WAITS
		fi;
		told[a] = 0
	}
}

/* The reply is lost, or ctx ends: what the call may have taken is released. */
inline unanswered(a) {
	d_step {
		phase[a] == ASKS ->
		printf("attempt %d hears nothing and gives up\n", a);
		phase[a] = GONE;
		told[a] = 0;
		give(PROCESS(a), value[a], 0);
		leave(a)
	}
}

inline gives_up(a) {
	d_step {
		phase[a] == WAITS ->
		printf("attempt %d gives up\n", a);
		phase[a] = GONE;
		leave(a)
	}
}

inline release(a) {
	d_step {
		phase[a] == HOLDS ->
		printf("attempt %d releases the lock\n", a);
		phase[a] = GONE;
		give(PROCESS(a), value[a], sure[a])
	}
}

/* The reply to a release arrives. */
inline hear_reply(k) {
	d_step {
		reply[k] != 0 && !settled[k] ->
		printf("the reply to release %d arrives: %d\n", k, reply[k]);
#ifndef ALLTELL
		settled[k] = 1;
#endif
		if :: reply[k] == 1 -> tell(from[k], GRANTED(k), 1) :: else fi;
		reply[k] = 0
	}
}

/* The reply to a release is lost. */
inline lose_reply(k) {
	d_step {
		gives[k] != 0 && !settled[k] ->
		reply[k] = 0;
#if defined(OLD) && defined(NORETRY)
		settled[k] = 1;
		printf("the reply to release %d is lost\n", k);
		if :: own[k] -> tell(from[k], GRANTED(k), 0) :: else fi
#else
		/* It is sent again with the same values, and names its process as the next if somebody waits then. */
#ifndef OLD
		own[k] = WAITED(from[k])
#endif
#endif
	}
}

inline hear_message(k) {
	d_step {
		message[k] != 0 ->
		printf("process %d hears of value %d\n", message[k]-1, OFFERED(k));
		j = message[k] - 1;
#ifndef FORGETFUL
		if
		:: known_to[j] & BIT(OFFERED(k)) -> message[k] = 0; j = 2
		:: else -> known_to[j] = known_to[j] | BIT(OFFERED(k))
		fi;
#endif
#ifndef HEARTWICE
		message[k] = 0;
#endif
		if
		:: j == 0 -> tell(0, OFFERED(k), (whole[k] -> 2 : 0))
		:: j > 1 -> printf("   (it has heard of it before)\n")
		:: j == 1 -> tell(1, OFFERED(k), (whole[k] -> 2 : 0))
		fi;
		j = 0
	}
}

#if OTHERS > 0
#define OFFERS(k) :: run_offer(k, 0, 0) :: run_offer(k, 0, 1) :: run_offer(k, 1, 0) :: run_offer(k, 1, 1)
#else
#define OFFERS(k) :: run_offer(k, 0, 0) :: run_offer(k, 0, 1)
#endif
#define GIVE(k) :: run_again(k) :: run_rotate(k) :: run_free(k) :: hear_reply(k) :: lose_reply(k) :: hear_message(k) OFFERS(k)
#define ATTEMPT(a) :: run_acquire(a, 0) :: run_acquire(a, 1) :: ask(a) :: ask_with_turn(a) :: take(a) :: answered(a) :: unanswered(a) \
	:: gives_up(a) :: release(a)

active proctype world() {
	d_step {
		phase[0] = HOLDS;
		value[0] = OWN(0);
		lock = OWN(0);
		by = OWN(0)
	}
	do
	ATTEMPT(0)
	ATTEMPT(1)
	ATTEMPT(2)
#if ATTEMPTS > 3
	ATTEMPT(3)
#endif
	GIVE(0)
	GIVE(1)
#if GIVES > 2
	GIVE(2)
#endif
#if GIVES > 3
	GIVE(3)
#endif
	:: expire()
	od
}
