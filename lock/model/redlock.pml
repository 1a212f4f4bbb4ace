/* The lock and the token of redlock.Locker, for spin. README.md tells how to run it and what came of it.
 *
 * What is modelled: three nodes, each with the lock (a string with the holder's value) and the
 * record (the register of tokens: the last one voted for, and for which attempt), as
 * ../redlock/scripts/*.lua keep them, and two or three attempts to acquire the one lock, as
 * election.go, claim.go and lock.go of ../redlock make them. Every step below is one run of a script
 * on one node, one decision of a client, or one thing that happens to either.
 *
 * What is abstracted, and why that hides nothing:
 *
 * Messages. What a client has sent is in the air for ever, for every node: a node may run it
 *   at any moment, never, and any number of times. That is delay, loss, duplication, overtaking
 *   and late arrival in one. What a node has answered stays answered: the client acts on it
 *   at any moment, or never. So neither needs a queue. What a real network does is part of this.
 * Pauses and crashes of clients. A client's steps may come at any moment, and none must come.
 * The moment of return. A client returns in the step that finds its quorum. In truth it is later,
 *   and then fewer attempts begin after it: what is checked here is more.
 * Proposals. Any token at any time, for the first round as for the second, which needs no
 *   refusal to begin. What the code proposes is among them.
 * The nodes' clocks. A node without a record refuses tokens that are not ahead of its clock, and
 *   any node refuses those that are an hour ahead of it. Here any node may refuse any token
 *   (it gives the lock without a vote, or does nothing at all), so every clock is covered.
 * Time (-DTIMED). The assumption of Redlock is that a node lets no lock end before the end of
 *   the validity that its holder reckons from the moment before it asked: ttl on the node's
 *   clock, since a later moment, against ttl - ttl*0.01 - 2ms on the client's. Only this
 *   order is used, so the model has no clock but the fact that an attempt's validity is over,
 *   which becomes true at any moment, and before which no node expires that lock.
 *   Without -DTIMED a lock may expire at any moment, and nobody asks for the validity.
 * Losses of memory (-DLOSSES=n). A node forgets its lock and its record at any moment, n times in
 *   all. It grants nothing until what it forgot has ended, but extends and releases what it has.
 *   How clients find out is not modelled. Its clock stands in for the record. The assumption
 *   about clocks: when the node counts again, its clock is no less than any token that it has
 *   voted for. clocks.pml is about that.
 * Memory that is rolled back (-DROLLED). A node may take a snapshot at any moment, LOSSES times in
 *   all, and a loss takes it back to its snapshot: an RDB file, or an append-only file without
 *   its tail. So an older lock is there again. The node goes by the larger of its record and its
 *   floor, which is what its clock shows when it counts again: that is its floor, by the assumption.
 *   A snapshot has the time when a lock ends. So a lock that has ended on the node is not there again.
 * A lock that is set again (-DRESET). When an extension is confirmed, the holder asks the nodes that say that the
 *   lock is gone to set it again. Such a request is in the air for ever, for every node, as all
 *   others are. A node runs it if it counts and the lock is free there. It gives no vote, and leaves its
 *   record as it is. The node's answer counts from the next extension on. Which nodes are asked is up
 *   to the client: here all may be, and so those that the code asks are among them.
 * Attempts are alike, so they begin in the order of their numbers. Nodes are alike, so with -DSORT
 *   states that differ in the names of nodes are searched once. Tokens are only ever
 *   compared, so with -DRANKS they are kept as ranks, and none is left out.
 *
 * The bounds: -DATTEMPTS, 2 or 3; two rounds an attempt, of which -DAGAIN attempts may have the
 * second; -DEXTENDS, one extend an attempt or two; -DTOKENS, the number of different tokens, without effect from twice
 * the number of attempts on; -DLOSSES. Messages have none.
 *
 * The parts, since three attempts with all of them are too many states:
 *   -DNOLOCK      the register alone: a node votes without looking at the lock. It can do all
 *                 that it can do with the lock and without -DTIMED, where the lock may expire, and
 *                 be taken again by a duplicate, between any two steps.
 *   -DNOREGISTER  the lock alone: a node that holds the lock for an attempt votes for it. It can do
 *                 all that it can do with the register, which only makes it vote less.
 *
 * What is checked, each when an attempt returns with a token:
 *   -DUNIQUE      no attempt has returned with this token before.
 *   -DORDER       the token is larger than those of all attempts that had returned when it began.
 *   -DEXCLUSION   no other holder is valid (needs -DTIMED).
 *   -DSTILL       the nodes that confirm an attempt's first extension had the lock already when it was
 *                 asked for, be it that somebody deletes it on a node (-DDROPS=n, how often). Late copies of
 *                 acquires would set it too, so there are none: here they keep their deadline.
 *   -DREACH=...   that this is not so. It must be so in some run, else the rest says nothing.
 *                 -DBYTURNS (an attempt begins when the one before has returned) and -DSECONDONLY
 *                 (no votes in the first round) leave runs out, to find one sooner.
 *
 * The variants, each of which must be found to be broken:
 *   -DNOHELD      a node votes without looking whose lock it is.
 *   -DNOCOMPARE   a node stores the token that it is told, be it larger or not.
 *   -DINCR        a node counts grants, and the largest count of a quorum is the token.
 *   -DFORGET      a node that loses its memory counts at once, from nothing.
 *   -DDELANY      a release deletes the lock, whosever it is.
 *   -DBELIEVED    a record of an older memory counts as it is. Only a lost one is the clock's.
 *   -DNOREST      a node that lost its memory counts at once.
 *   Both of these: a node that is thought to keep everything, and is rolled back.
 *   -DRESTLESS    a node that doesn't count yet sets a lock again.
 *   -DATONCE      an extension sets the lock where it is gone, and counts that.
 *   -DLOWERS      a node that sets a lock again votes for its token, which is below what the
 *                 node goes by, and goes back to it.
 */

#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef TOKENS
#define TOKENS 4        /* at most 6 */
#endif
#ifndef LOSSES
#define LOSSES 0        /* how often a node loses its memory */
#endif
#ifndef AGAIN
#define AGAIN ATTEMPTS  /* how many attempts may propose again */
#endif
#ifndef EXTENDS
#define EXTENDS 1       /* extends of an attempt, 1 or 2 */
#endif
#ifndef DROPS
#define DROPS 0         /* how often somebody deletes the lock on a node */
#endif
#define NODES 3
#define QUORUM 2

/* An attempt, and what became of it. One whose client has died stays what it is. */
#define IDLE 0
#define TRYING 1
#define HOLDS 2         /* Acquire has returned with a token; whether it is valid is another question */
#define GONE 3          /* released, or given up: releases are in the air */

byte phase[ATTEMPTS];
byte first[ATTEMPTS];   /* the proposal of the first round, in the air; 0: none */
byte second[ATTEMPTS];  /* and that of the second */
byte before[ATTEMPTS];  /* the largest token that somebody had returned with when it began */
byte extended[ATTEMPTS];/* 1: an extend is in the air; 2: a quorum has said yes in time; 3, 4: the same for the second */
byte over[ATTEMPTS];    /* 1: the validity reckoned from the acquire is over; 2: also from the extend; 3: from the second */

/* A node. Attempt a is a+1 here, and 0 is nobody. */
byte held[NODES];       /* the lock's value */
#if EXTENDS > 1
byte later[NODES];      /* it was extended so often: it ends with the validity reckoned from there */
#define TIMES 2         /* bits for that */
#else
bit later[NODES];       /* it was extended: it ends with the validity reckoned from there */
#define TIMES 1
#endif
byte last[NODES];       /* the record: the token */
byte by[NODES];         /* and the attempt */
byte away[NODES];       /* a bit for each attempt whose lock it forgot: until they have ended it doesn't count */
byte longer[NODES];     /* of those, how often each had been extended: TIMES bits for each attempt */
#ifdef ROLLED
byte old_held[NODES];   /* its snapshot */
#if EXTENDS > 1
byte old_later[NODES];
#else
bit old_later[NODES];
#endif
#ifdef BELIEVED
byte old_last[NODES];
byte old_by[NODES];
#endif
#endif

/* What the node has answered, a bit for each attempt: votes for its first and its second
 * proposal, and the extend. They are cleared when they don't matter any more. */
byte voted1[NODES];
byte voted2[NODES];
byte prolonged[NODES];

#ifdef STILL
byte had[NODES];        /* a bit for each attempt: the node had its lock when its first extend was asked for */
#endif

byte losses;
#if DROPS > 0
byte drops;
#endif
#ifdef ROLLED
byte shots;             /* snapshots */
#endif
byte again;             /* second rounds */
byte granted;           /* a bit for each token that was granted */
byte largest;           /* of those */
#ifdef RANKS
byte ranks;             /* tokens proposed, without the repeated */
#endif
#ifdef REACH
byte rounds1, rounds2;  /* how many returned by their first round, and by their second */
#endif

#ifdef INCR
byte counted[9];        /* [3*node + attempt]: the count that the node has answered */
#endif

byte i, tmp;            /* inside of a step only: they are 0 between two */

#define BIT(a) (1 << (a))
#define HAS(set, a) (((set) >> (a)) & 1)
#define ASKED(a) ((extended[a] + 1) / 2)    /* which extend was asked for last; 0: none */
#define CONFIRMED(a) (extended[a] / 2)      /* and which was confirmed */
#define LONGER(n, a) ((longer[n] >> (TIMES*(a))) & ((1 << TIMES) - 1))
#define COUNT(votes, a) (HAS(votes[0], a) + HAS(votes[1], a) + HAS(votes[2], a))

/* Attempt a's lock ends on the node, if it was extended so often. So it ends in the snapshot, which is not younger. */
#ifdef ROLLED
#define ENDS_IN_SNAPSHOT(a, n, times) if :: old_held[n] == a+1 && old_later[n] <= times -> old_held[n] = 0; old_later[n] = 0 :: else fi
#else
#define ENDS_IN_SNAPSHOT(a, n, times) skip
#endif

/* ---- Nodes that are alike ---- */

#ifdef SORT
#define KEY(n) (((((((held[n]*(1 << TIMES) + later[n])*8 + last[n])*4 + by[n])*8 + voted1[n])*8 + voted2[n])*8) + prolonged[n])
#ifdef ROLLED
#ifdef BELIEVED
#define KEY2(n) (((((old_last[n]*4 + old_by[n])*4 + old_held[n])*(1 << TIMES) + old_later[n])*8 + away[n])*64 + longer[n])
#else
#define KEY2(n) (((old_held[n]*(1 << TIMES) + old_later[n])*8 + away[n])*64 + longer[n])
#endif
#else
#define KEY2(n) (away[n]*64 + longer[n])
#endif
#define BEHIND(m, n) (KEY(m) > KEY(n) || KEY(m) == KEY(n) && KEY2(m) > KEY2(n))
#define SWAP(v, m, n) tmp = v[m]; v[m] = v[n]; v[n] = tmp
#ifdef ROLLED
#ifdef BELIEVED
inline swap_snapshots(m, n) {
	SWAP(old_held, m, n); SWAP(old_later, m, n); SWAP(old_last, m, n); SWAP(old_by, m, n)
}
#else
inline swap_snapshots(m, n) {
	SWAP(old_held, m, n); SWAP(old_later, m, n)
}
#endif
#else
inline swap_snapshots(m, n) { skip }
#endif
inline swap(m, n) {
	SWAP(held, m, n); SWAP(later, m, n); SWAP(last, m, n); SWAP(by, m, n); SWAP(away, m, n);
	SWAP(longer, m, n); SWAP(voted1, m, n); SWAP(voted2, m, n); SWAP(prolonged, m, n);
	swap_snapshots(m, n);
	printf("   (nodes %d and %d change names)\n", m, n)
}
/* Ends each step that changes a node. */
inline sort() {
	if :: BEHIND(0, 1) -> swap(0, 1) :: else fi;
	if :: BEHIND(1, 2) -> swap(1, 2) :: else fi;
	if :: BEHIND(0, 1) -> swap(0, 1) :: else fi;
	tmp = 0
}
#else
inline sort() { skip }
#endif

/* ---- What a client does ---- */

inline forget_answers(a) {
	i = 0;
	do
	:: i < NODES ->
		voted1[i] = voted1[i] & ~BIT(a);
		voted2[i] = voted2[i] & ~BIT(a);
		prolonged[i] = prolonged[i] & ~BIT(a);
		i++
	:: else -> break
	od;
	i = 0
}

/* With -DRANKS tokens are kept as their ranks among those proposed. A proposal is one of those, or
 * a fresh one between two of them, for which the larger ones move up. That is any token. */
#ifdef RANKS
#define CAN_BE(t, fresh) (fresh -> ranks < TOKENS && t <= ranks+1 : t <= ranks)
#define MOVE(v, t) if :: v >= t -> v++ :: else fi
#if defined(ROLLED) && defined(BELIEVED)
#define MOVE_SNAPSHOT(n, t) MOVE(old_last[n], t)
#else
#define MOVE_SNAPSHOT(n, t) skip
#endif
inline choose(t, fresh) {
	if
	:: fresh ->
		ranks++;
		i = 0;
		do
		:: i < NODES -> MOVE(last[i], t); MOVE_SNAPSHOT(i, t); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < ATTEMPTS -> MOVE(first[i], t); MOVE(second[i], t); MOVE(before[i], t); i++
		:: else -> break
		od;
		i = 0;
		MOVE(largest, t);
		granted = (granted & (BIT(t)-1)) | ((granted >> t) << (t+1));
		printf("   (tokens from %d on are called one more)\n", t)
	:: else
	fi
}
#else
#define CAN_BE(t, fresh) true
inline choose(t, fresh) { skip }
#endif

#ifdef BYTURNS
#define NEXT(p) (p == HOLDS || p == GONE)
#else
#define NEXT(p) (p != IDLE)
#endif

inline begin(a, t, fresh) {
	d_step {
		phase[a] == IDLE && (a == 0 || NEXT(phase[(a+ATTEMPTS-1)%ATTEMPTS])) && CAN_BE(t, fresh) ->
		choose(t, fresh);
		phase[a] = TRYING;
		first[a] = t;
		before[a] = largest;
		printf("attempt %d begins: it proposes %d to all nodes\n", a, t)
	}
}

/* The second round: only nodes that hold the lock for it will vote. */
inline propose_again(a, t, fresh) {
	d_step {
		phase[a] == TRYING && second[a] == 0 && again < AGAIN && (fresh || first[a] != t) && CAN_BE(t, fresh) ->
		choose(t, fresh);
		second[a] = t;
		again++;
		printf("attempt %d proposes %d in a second round\n", a, t)
	}
}

#ifdef TIMED
#define IN_TIME(a) (over[a] == 0)
#define VALID(b) (phase[b] == HOLDS && over[b] <= CONFIRMED(b))
#else
#define IN_TIME(a) true
#define VALID(b) false
#endif

#if ATTEMPTS == 2
#define OTHER_VALID(a) VALID(1-a)
#else
#define OTHER_VALID(a) (VALID((a+1)%3) || VALID((a+2)%3))
#endif

inline returns(a, t) {
	printf("attempt %d returns with token %d\n", a, t);
#ifdef UNIQUE
	assert(!HAS(granted, t));           /* no token is granted twice */
#endif
#ifdef ORDER
	assert(t > before[a]);              /* tokens are in real-time order */
#endif
#ifdef EXCLUSION
	assert(!OTHER_VALID(a));            /* at most one valid holder */
#endif
	phase[a] = HOLDS;
	before[a] = 0;
#ifdef UNIQUE
	granted = granted | BIT(t);
#endif
#ifdef ORDER
	if :: t > largest -> largest = t :: else fi;
#endif
	forget_answers(a);
	sort()
}

#ifdef REACH
#define REACHED assert(!(REACH))
#define ROUND(r) r++
#else
#define REACHED skip
#define ROUND(r) skip
#endif

/* A quorum has voted for the same token, and validity is left. */
inline win1(a) {
	d_step {
		phase[a] == TRYING && IN_TIME(a) && COUNT(voted1, a) >= QUORUM ->
		returns(a, first[a]);
		ROUND(rounds1);
		REACHED
	}
}

inline win2(a) {
	d_step {
		phase[a] == TRYING && IN_TIME(a) && COUNT(voted2, a) >= QUORUM ->
		returns(a, second[a]);
		ROUND(rounds2);
		REACHED
	}
}

#ifdef INCR
#define GOT(n, a) counted[3*(n) + (a)]
inline win_most(a, m, n) {
	d_step {
		phase[a] == TRYING && IN_TIME(a) && GOT(m, a) && GOT(n, a) ->
		tmp = (GOT(m, a) > GOT(n, a) -> GOT(m, a) : GOT(n, a));
		returns(a, tmp);
		tmp = 0
	}
}
#endif

/* The validity that the client reckons ends. */
inline end_validity(a) {
	d_step {
		phase[a] != IDLE && over[a] <= ASKED(a) ->
		over[a] = over[a] + 1;
		if
		:: over[a] == 1 -> printf("attempt %d: the validity from its acquire is over\n", a)
		:: else -> printf("attempt %d: the validity from its extend %d is over\n", a, over[a]-1)
		fi;
		i = 0;
		do
		:: i < NODES ->
			if
			:: HAS(away[i], a) && over[a] > LONGER(i, a) ->
				ENDS_IN_SNAPSHOT(a, i, LONGER(i, a));
				away[i] = away[i] & ~BIT(a);
				longer[i] = longer[i] & ~(((1 << TIMES) - 1) << (TIMES*a));
				if :: away[i] == 0 -> printf("node %d: all that it forgot would have expired: it counts again\n", i) :: else fi
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		sort()
	}
}

inline extend(a) {
	d_step {
		phase[a] == HOLDS && over[a] <= CONFIRMED(a) && ASKED(a) == CONFIRMED(a) && ASKED(a) < EXTENDS ->
		extended[a] = extended[a] + 1;
#ifdef STILL
		i = 0;
		do
		:: i < NODES -> if :: held[i] == a+1 && ASKED(a) == 1 -> had[i] = had[i] | BIT(a) :: else fi; i++
		:: else -> break
		od;
		i = 0;
#endif
		printf("attempt %d asks all nodes to extend\n", a)
	}
}

/* A quorum still had the lock, and the validity has not ended meanwhile. */
inline keep(a) {
	d_step {
		phase[a] == HOLDS && over[a] <= CONFIRMED(a) && ASKED(a) > CONFIRMED(a) && COUNT(prolonged, a) >= QUORUM ->
#ifdef STILL
		if
		:: extended[a] == 1 ->
			i = 0;
			do
			:: i < NODES -> assert(!HAS(prolonged[i], a) || HAS(had[i], a)); had[i] = had[i] & ~BIT(a); i++
			:: else -> break
			od;
			i = 0
		:: else
		fi;
#endif
		extended[a] = extended[a] + 1;
		forget_answers(a);
		printf("attempt %d is extended\n", a);
		sort();
		REACHED
	}
}

/* Release, or the end of an attempt that failed, or whose caller's ctx ended. */
inline release(a) {
	d_step {
		phase[a] == TRYING || phase[a] == HOLDS ->
		phase[a] = GONE;
		before[a] = 0;
		forget_answers(a);
		printf("attempt %d tells all nodes to release\n", a);
		sort()
	}
}

/* ---- What a node does with what it is told, each as one script ---- */

#ifdef STILL
#define ARRIVES(a) (phase[a] == TRYING)     /* later the deadline of an acquire is over */
#else
#define ARRIVES(a) (phase[a] != IDLE)
#endif

/* Does the register let the node vote? */
#ifdef NOCOMPARE
#define MORE(a, n, t) true
#else
#define MORE(a, n, t) (last[n] < t || last[n] == t && by[n] == a+1)
#endif

#ifdef NOLOCK
#define MAY_TAKE(a, n) true
#define HAS_LOCK(a, n) true
#define TAKE(a, n) skip
#else
#ifdef NOHELD
#define MAY_TAKE(a, n) (away[n] == 0)
#define HAS_LOCK(a, n) (away[n] == 0)
#else
#define MAY_TAKE(a, n) (away[n] == 0 && (held[n] == 0 || held[n] == a+1))
#define HAS_LOCK(a, n) (away[n] == 0 && held[n] == a+1)
#endif
#define TAKE(a, n) if :: held[n] == 0 -> held[n] = a+1 :: else fi
#endif

/* acquire.lua with ARGV[6] = 1: takes the lock if it is free, and votes. */
inline vote1(a, n) {
	d_step {
#ifdef NOREGISTER
		ARRIVES(a) && MAY_TAKE(a, n) ->
#else
		ARRIVES(a) && MAY_TAKE(a, n) && MORE(a, n, first[a]) ->
		last[n] = first[a];
		by[n] = a+1;
#endif
		TAKE(a, n);
		if :: phase[a] == TRYING -> voted1[n] = voted1[n] | BIT(a) :: else fi;
		printf("node %d (its lock: attempt %d, -1 none) votes for attempt %d's first proposal, %d\n", n, held[n]-1, a, first[a]);
		sort()
	}
}

/* The same where the register or the clock is against it. */
inline take(a, n) {
	d_step {
		ARRIVES(a) && away[n] == 0 && held[n] == 0 ->
		held[n] = a+1;
		printf("node %d gives the lock to attempt %d, but %d no vote\n", n, a, first[a]);
		sort()
	}
}

/* acquire.lua with ARGV[6] = 0: votes only. */
inline vote2(a, n) {
	d_step {
		second[a] != 0 && HAS_LOCK(a, n) && MORE(a, n, second[a]) ->
		last[n] = second[a];
		by[n] = a+1;
		if :: phase[a] == TRYING -> voted2[n] = voted2[n] | BIT(a) :: else fi;
		printf("node %d (its lock: attempt %d, -1 none) votes for attempt %d's second proposal, %d\n", n, held[n]-1, a, second[a]);
		sort()
	}
}

#ifdef INCR
/* Instead of both: takes the lock if it is free and counts, once for each attempt. */
inline count(a, n) {
	d_step {
		phase[a] != IDLE && MAY_TAKE(a, n) && GOT(n, a) == 0 ->
		TAKE(a, n);
		last[n] = last[n] + 1;
		GOT(n, a) = last[n];
		printf("node %d: the lock is attempt %d's, and it is number %d\n", n, a, last[n])
	}
}
#endif

/* extend.lua */
#ifdef ATONCE
#define MAY_PROLONG(a, n) (held[n] == a+1 || held[n] == 0 && away[n] == 0)
#else
#define MAY_PROLONG(a, n) (held[n] == a+1)
#endif
inline prolong(a, n) {
	d_step {
		extended[a] != 0 && MAY_PROLONG(a, n) ->
		held[n] = a+1;
		later[n] = ASKED(a);
		if :: phase[a] == HOLDS && ASKED(a) > CONFIRMED(a) -> prolonged[n] = prolonged[n] | BIT(a) :: else fi;
		printf("node %d: attempt %d's lock is extended\n", n, a);
		sort()
	}
}

#ifdef RESET
/* acquire.lua with ARGV[3] = 0: takes the lock if it is free, and votes for nothing. How long the node keeps it is
 * reckoned from the first extension that was confirmed; in truth it is as long, or longer. */
#ifdef RESTLESS
#define MAY_RESET(n) (held[n] == 0)
#else
#define MAY_RESET(n) (held[n] == 0 && away[n] == 0)
#endif
inline reset(a, n) {
	d_step {
		CONFIRMED(a) > 0 && MAY_RESET(n) ->
		held[n] = a+1;
		later[n] = 1;
#ifdef LOWERS
		last[n] = first[a];
		by[n] = a+1;
#endif
		printf("node %d: attempt %d's lock is set again\n", n, a);
		sort()
	}
}
#endif

/* release.lua */
#ifdef DELANY
#define TO_DELETE(a, n) (held[n] != 0)
#else
#define TO_DELETE(a, n) (held[n] == a+1)
#endif
inline delete(a, n) {
	d_step {
		phase[a] == GONE && TO_DELETE(a, n) ->
		printf("node %d: attempt %d's release deletes the lock of attempt %d\n", n, a, held[n]-1);
		held[n] = 0;
		later[n] = 0;
		sort()
	}
}

/* ---- What happens to a node ---- */

#ifdef TIMED
#define ENDED(a, n) (over[a] > later[n])
#else
#define ENDED(a, n) true
#endif
inline expire(a, n) {
	d_step {
		held[n] == a+1 && ENDED(a, n) ->
		printf("node %d: attempt %d's lock expires\n", n, a);
		ENDS_IN_SNAPSHOT(a, n, later[n]);
		held[n] = 0;
		later[n] = 0;
		sort()
	}
}

#if DROPS > 0
/* Somebody deletes the lock on a node. */
inline drop(n) {
	d_step {
		held[n] != 0 && drops < DROPS ->
		drops++;
		printf("node %d: somebody deletes attempt %d's lock\n", n, held[n]-1);
		held[n] = 0;
		later[n] = 0;
		sort()
	}
}
#endif

#ifdef ROLLED
/* A snapshot of nothing is what a node without one goes back to. */
#ifdef BELIEVED
#define WORTH(n) (last[n] != 0)
#else
#define WORTH(n) (held[n] != 0)
#endif
inline snapshot(n) {
	d_step {
		shots < LOSSES && WORTH(n) ->
		shots++;
		old_held[n] = held[n];
		old_later[n] = later[n];
#ifdef BELIEVED
		old_last[n] = last[n];
		old_by[n] = by[n];
#endif
		printf("node %d takes a snapshot: the lock is attempt %d's (-1: nobody's), its record is %d\n", n, held[n]-1, last[n]);
		sort()
	}
}
#endif

/* The node loses its memory, or goes back to its snapshot. */
inline lose(n) {
	d_step {
		losses < LOSSES ->
		losses++;
#if defined(TIMED) && !defined(NOREST) && !defined(FORGET)
		if
		:: held[n] != 0 ->
			away[n] = away[n] | BIT(held[n]-1);
			if
			:: LONGER(n, held[n]-1) < later[n] ->
				longer[n] = (longer[n] & ~(((1 << TIMES) - 1) << (TIMES*(held[n]-1)))) | (later[n] << (TIMES*(held[n]-1)))
			:: else
			fi
		:: else
		fi;
#endif
		by[n] = 0;
		held[n] = 0;
		later[n] = 0;
#ifdef FORGET
		last[n] = 0;
#endif
#ifdef ROLLED
		held[n] = old_held[n];
		later[n] = old_later[n];
#ifdef BELIEVED
		if
		:: old_last[n] != 0 ->
			last[n] = old_last[n];
			by[n] = old_by[n]
		:: else /* there is no record, so the clock stands in */
		fi;
#endif
		printf("node %d goes back to its snapshot: the lock is attempt %d's (-1: nobody's), its record is worth %d\n", n, held[n]-1, last[n]);
#else
		printf("node %d loses its memory\n", n);
#endif
		sort()
	}
}

/* ---- All that may happen, in any order ---- */

#ifdef NOREGISTER
#define MAX_TOKEN 1
#else
#ifdef INCR
#define MAX_TOKEN 1
#else
#define MAX_TOKEN TOKENS
#endif
#endif

#ifdef RANKS
#define CHOICE(step, a, t) step(a, t, 0) :: step(a, t, 1)
#else
#define CHOICE(step, a, t) step(a, t, 0)
#endif
#define ANY_TOKEN_1(step, a) :: CHOICE(step, a, 1)
#if MAX_TOKEN > 1
#define ANY_TOKEN_2(step, a) ANY_TOKEN_1(step, a) :: CHOICE(step, a, 2)
#else
#define ANY_TOKEN_2(step, a) ANY_TOKEN_1(step, a)
#endif
#if MAX_TOKEN > 2
#define ANY_TOKEN_3(step, a) ANY_TOKEN_2(step, a) :: CHOICE(step, a, 3)
#else
#define ANY_TOKEN_3(step, a) ANY_TOKEN_2(step, a)
#endif
#if MAX_TOKEN > 3
#define ANY_TOKEN_4(step, a) ANY_TOKEN_3(step, a) :: CHOICE(step, a, 4)
#else
#define ANY_TOKEN_4(step, a) ANY_TOKEN_3(step, a)
#endif
#if MAX_TOKEN > 4
#define ANY_TOKEN_5(step, a) ANY_TOKEN_4(step, a) :: CHOICE(step, a, 5)
#else
#define ANY_TOKEN_5(step, a) ANY_TOKEN_4(step, a)
#endif
#if MAX_TOKEN > 5
#define ANY_TOKEN(step, a) ANY_TOKEN_5(step, a) :: CHOICE(step, a, 6)
#else
#define ANY_TOKEN(step, a) ANY_TOKEN_5(step, a)
#endif

#ifdef INCR
#define VOTES(a, n) :: count(a, n)
#define WINS(a) ANY_TOKEN(begin, a) :: win_most(a, 0, 1) :: win_most(a, 0, 2) :: win_most(a, 1, 2)
#else
#ifdef NOREGISTER
#define VOTES(a, n) :: vote1(a, n)
#define WINS(a) ANY_TOKEN(begin, a) :: win1(a)
#else
#ifdef SECONDONLY
#define VOTES(a, n) :: vote2(a, n)
#else
#define VOTES(a, n) :: vote1(a, n) :: vote2(a, n)
#endif
#define WINS(a) ANY_TOKEN(begin, a) ANY_TOKEN(propose_again, a) :: win1(a) :: win2(a)
#endif
#endif

#ifdef NOLOCK
#define LOCKS(a, n)
#define ENDS(a)
#else
#ifdef TIMED
#ifdef RESET
#define LOCKS(a, n) :: take(a, n) :: delete(a, n) :: expire(a, n) :: prolong(a, n) :: reset(a, n)
#else
#define LOCKS(a, n) :: take(a, n) :: delete(a, n) :: expire(a, n) :: prolong(a, n)
#endif
#define ENDS(a) :: release(a) :: end_validity(a) :: extend(a) :: keep(a)
#else
#define LOCKS(a, n) :: take(a, n) :: delete(a, n) :: expire(a, n)
#define ENDS(a) :: release(a)
#endif
#endif

#define AT(a, n) VOTES(a, n) LOCKS(a, n)
#define ATTEMPT(a) WINS(a) ENDS(a) AT(a, 0) AT(a, 1) AT(a, 2)

active proctype world() {
	do
	ATTEMPT(0)
	ATTEMPT(1)
#if ATTEMPTS > 2
	ATTEMPT(2)
#endif
#if DROPS > 0
	:: drop(0) :: drop(1) :: drop(2)
#endif
#if LOSSES > 0
	:: lose(0) :: lose(1) :: lose(2)
#ifdef ROLLED
	:: snapshot(0) :: snapshot(1) :: snapshot(2)
#endif
#endif
	od
}
