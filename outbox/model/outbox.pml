/* How a relay moves rows of a database to Redis, each once, for spin. README.md tells how to run it.
 *
 * What is modelled: one shard of an outbox, and two relays without a leader. Every step below is one transaction, one run of
 * the script, one decision of a relay, or one thing that happens to a server.
 *
 * What is abstracted, and why that hides nothing:
 *
 * Calls. What a relay has sent is in the air for ever: Redis may run it at any moment, never, and any number of times. That is delay,
 *   loss and repetition in one. So a call is in the air as soon as its batch is committed.
 * Answers. A relay gets one when Redis could give it, and acts on it at any later moment, or never.
 * Pauses and crashes of relays. A relay's steps may come at any moment, and none must come.
 * Rows. They are of one group, numbered in the order of their commits, and a batch has one. Rows of transactions that were rolled
 *   back don't exist.
 * Names. Each batch has a name, from 1, that stands for its sequence number and its nonce. 0 is a lane that is missing.
 * Rollbacks. Redis may take a snapshot at any moment, and go back to it at any later moment, RBACK times. So may the
 *   database, DBACK times. What is lost is always within the window: nothing is purged.
 *
 * What is checked:
 *   once   no row is put in twice in what Redis remembers, but behind an alarm
 *   lost   whenever the lane is what the database says it must be, Redis has the row of each batch that is sent
 *   order  rows are put in in their order, unless the database went back
 *   false  no alarm, unless the database went back; and nothing is sent again, unless one of the two did
 *   -DREACH=... that this is not so. It must be so in some run, else the rest says nothing.
 *
 * The variants, each of which must be found to be broken:
 *   -DNONONCE    the script compares numbers alone
 *   -DNOEXPECT   the script takes a batch if the lane's number is one less, whatever the lane's nonce
 *   -DSTALESENT  a relay takes a higher lane for a proof that its batch was sent
 *   -DANYORDER   the second transaction marks a batch that isn't the lowest unsent one
 *   -DANYNONCE   the second transaction compares numbers alone
 *   -DJUMPALARM  a lane that shows an unsent batch which isn't the lowest is taken for a database that went back
 *   -DKEEPMUST   what the lane must show stays what it was when batches below it are marked as sent
 *   -DLOOKONCE   a relay decides by a look from before it had the lock
 *   -DNOLOCK     a relay picks rows without the lock
 *   -DNOLANE     the script has no lane
 *   -DNEWNONCE   a relay that takes an unsent batch again gives it a new nonce
 */
#ifndef ROWS
#define ROWS 3
#endif
#ifndef NAMES
#define NAMES 5
#endif
#ifndef RBACK
#define RBACK 0
#endif
#ifndef DBACK
#define DBACK 0
#endif
#ifndef RELAYS
#define RELAYS 2
#endif
#define MOST 7 /* at most so many names */
#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) >> (n)) & 1)

byte names;             /* how many were given out */
byte number[MOST+1];   /* by name: the sequence number */
byte row[MOST+1];      /* and the row */
byte air[MOST+1];      /* the lanes that its calls expect, a bit for each */

byte written;           /* rows that were committed */

/* The database. Sets of names and of rows are bits. */
byte seq, must;         /* the last number; the name that the lane must show */
byte batches, sent, waits;
byte lock;              /* relay + 1 */
#if DBACK > 0
byte old_seq, old_must, old_batches, old_sent, old_waits;
bit shot;
#endif

/* Redis. */
byte lane;
byte put[ROWS+1];       /* how often the row was put in, in what Redis remembers */
#if RBACK > 0
byte old_lane, old_put[ROWS+1];
bit rshot;
#endif

#define IDLE 0
#define TOOK 1          /* it has read a row, and writes the batch next (-DNOLOCK) */
#define WAITS 2         /* for the script's answer */
#define KNOWS 3         /* the batch is in */
#define DOUBTS 4        /* the lane isn't what it expected: it wants the lock */
#define LOOKS 5         /* it has the lock */
#define DECIDES 6       /* it has the lock, and read the lane */
byte phase[RELAYS], name[RELAYS], expect[RELAYS], seen[RELAYS];

bit alarm;
byte rback, dback;
byte i, low, tmp;  /* inside of a step only */

#define LIVE(n) (HAS(batches, n) && !HAS(sent, n))

/* low = the unsent batch with the lowest number, 0 if there is none */
inline lowest() {
	low = 0; i = 1;
	do
	:: i <= NAMES ->
		if :: LIVE(i) && (low == 0 || number[i] < number[low]) -> low = i :: else fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline first_row() {
	tmp = 1;
	do
	:: tmp <= ROWS && !HAS(waits, tmp) -> tmp++
	:: else -> break
	od
}

inline make(r, w) {
	names++;
	seq++;
	number[names] = seq; row[names] = w;
	batches = batches | BIT(names);
	waits = waits & ~BIT(w);
	name[r] = names; expect[r] = must;
	air[names] = air[names] | BIT(must);
	phase[r] = WAITS;
	printf("relay %d: batch %d, number %d, has row %d; it expects lane %d\n", r, names, seq, w, must)
}

/* The first transaction. */
inline take(r) {
	atomic {
		phase[r] == IDLE && lock == 0 && names < NAMES && (batches != sent || waits != 0) ->
		lowest();
		if
		:: low != 0 ->
#ifdef NEWNONCE
			names++; number[names] = number[low]; row[names] = row[low];
			batches = (batches & ~BIT(low)) | BIT(names);
			low = names;
#endif
			name[r] = low; expect[r] = must;
			air[low] = air[low] | BIT(must);
			phase[r] = WAITS;
			printf("relay %d: takes batch %d again; it expects lane %d\n", r, low, must)
		:: else ->
			first_row();
#ifdef NOLOCK
			name[r] = tmp; phase[r] = TOOK
#else
			make(r, tmp)
#endif
		fi;
		low = 0; tmp = 0
	}
}

#ifdef NOLOCK
inline took(r) {
	atomic {
		phase[r] == TOOK && names < NAMES ->
		tmp = name[r];
		make(r, tmp);
		tmp = 0
	}
}
#endif

#ifdef NOLANE
#define FITS(n, e) true
#else
#ifdef NONONCE
#define FITS(n, e) (number[lane] != number[n] && number[lane] == number[e] && number[lane] < number[n])
#else
#ifdef NOEXPECT
#define FITS(n, e) (lane != n && number[lane] + 1 == number[n])
#else
#define FITS(n, e) (lane != n && lane == e && number[e] < number[n])
#endif
#endif
#endif

/* One run of the script. */
inline script(n, e) {
	d_step {
		HAS(air[n], e) && FITS(n, e) ->
		lane = n;
		put[row[n]]++;
		printf("Redis: batch %d is in, with row %d\n", n, row[n]);
		assert(put[row[n]] < 2 || alarm);
		tmp = row[n] + 1;
		do
		:: tmp <= ROWS -> assert(dback > 0 || put[tmp] == 0); tmp++
		:: else -> break
		od;
		tmp = 0
	}
}

#ifdef NONONCE
#define ISIN(n) (number[lane] == number[n])
#else
#define ISIN(n) (lane == n)
#endif

#ifdef STALESENT
#define STALE(r) (number[lane] >= number[name[r]])
#else
#define STALE(r) false
#endif

inline answer(r) {
	d_step {
		phase[r] == WAITS && (ISIN(name[r]) || lane != expect[r] || STALE(r)) ->
		if
		:: ISIN(name[r]) -> phase[r] = KNOWS; printf("relay %d: batch %d is in\n", r, name[r])
#ifdef STALESENT
		:: !ISIN(name[r]) && STALE(r) -> phase[r] = KNOWS
#endif
		:: !ISIN(name[r]) && lane != expect[r] && !STALE(r) ->
			phase[r] = DOUBTS; seen[r] = lane;
			printf("relay %d: the lane is %d\n", r, lane)
		fi
	}
}

inline crash(r) {
	d_step {
		phase[r] != IDLE ->
		if :: lock == r + 1 -> lock = 0 :: else fi;
		phase[r] = IDLE; name[r] = 0; expect[r] = 0; seen[r] = 0;
		printf("relay %d: begins anew\n", r)
	}
}

/* The second transaction. */
inline settle(r) {
	d_step {
		phase[r] == KNOWS && lock == 0 ->
		low = 0;
#ifdef ANYORDER
		if :: LIVE(name[r]) -> low = name[r] :: else fi;
#else
		lowest();
#ifdef ANYNONCE
		if :: low != 0 && number[low] != number[name[r]] -> low = 0 :: else fi;
#else
		if :: low != name[r] -> low = 0 :: else fi;
#endif
#endif
		if
		:: low != 0 ->
			sent = sent | BIT(low); must = name[r];
			printf("relay %d: batch %d is sent\n", r, low)
		:: else
		fi;
		low = 0;
		phase[r] = IDLE; name[r] = 0; expect[r] = 0; seen[r] = 0
	}
}

/* A relay looks at the lane when it likes. */
inline look(r) {
	d_step {
		phase[r] == IDLE && lane != must ->
		phase[r] = DOUBTS; seen[r] = lane
	}
}

inline get_lock(r) {
	d_step {
		phase[r] == DOUBTS && lock == 0 ->
		lock = r + 1;
		name[r] = 0; expect[r] = 0;
#ifdef LOOKONCE
		phase[r] = DECIDES
#else
		phase[r] = LOOKS; seen[r] = 0
#endif
	}
}

inline look_again(r) {
	d_step {
		phase[r] == LOOKS ->
		seen[r] = lane; phase[r] = DECIDES
	}
}

/* The rows of batches up to number b wait again: of those that aren't sent, or of all. */
inline again(b, all) {
	i = 1;
	do
	:: i <= NAMES ->
		if
		:: HAS(batches, i) && number[i] <= b && (all || !HAS(sent, i)) ->
			batches = batches & ~BIT(i); sent = sent & ~BIT(i);
			waits = waits | BIT(row[i])
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* The batches behind number a are to be sent again. */
inline unsend(a) {
	i = 1;
	do
	:: i <= NAMES ->
		if :: HAS(batches, i) && number[i] > a -> sent = sent & ~BIT(i) :: else fi;
		i++
	:: else -> break
	od;
	i = 0
}

#ifdef JUMPALARM
#define JUMPED(n) false
#else
#define JUMPED(n) (n != 0 && LIVE(n))
#endif

inline decide(r) {
	d_step {
		phase[r] == DECIDES ->
		lowest();
		tmp = seen[r];
		if
		:: tmp == must || (low != 0 && tmp == low)
#ifndef JUMPALARM
		:: tmp != must && (low == 0 || tmp != low) && JUMPED(tmp) -> /* those below it are in, too */
			i = 1;
			do
			:: i <= NAMES ->
				if
				:: LIVE(i) && number[i] < number[tmp] ->
					sent = sent | BIT(i);
#ifndef KEEPMUST
					if :: number[i] > number[must] -> must = i :: else fi
#endif
				:: else
				fi;
				i++
			:: else -> break
			od;
			i = 0;
			printf("relay %d: the lane is %d, and what is below is in\n", r, tmp)
#endif
		:: tmp != must && (low == 0 || tmp != low) && (tmp == 0 || HAS(sent, tmp)) ->
			printf("relay %d: Redis went back to %d\n", r, tmp);
			assert(rback > 0 || dback > 0);
			unsend(number[tmp]);
			must = tmp
		:: tmp != must && (low == 0 || tmp != low) && tmp != 0 && !HAS(sent, tmp) && !JUMPED(tmp) ->
			printf("relay %d: the database went back: the lane is %d\n", r, tmp);
			assert(dback > 0);
			alarm = 1;
			if
			:: number[tmp] > number[must] -> again(number[tmp], 0)
			:: else -> again(number[tmp], 1)
			fi;
			unsend(number[tmp]);
			must = tmp;
			if :: seq < number[tmp] -> seq = number[tmp] :: else fi
		fi;
		low = 0; tmp = 0;
		lock = 0; phase[r] = IDLE; seen[r] = 0
	}
}

inline write() {
	d_step {
		written < ROWS ->
		written++;
		waits = waits | BIT(written);
		printf("row %d is committed\n", written)
	}
}

#define GONE(n) (HAS(sent, n) && HAS(batches, n) && put[row[n]] == 0)

#if RELAYS > 2
#define THIRD(step) :: step(2)
#else
#define THIRD(step)
#endif

/* Every call for batch n: there is one for each lane that it may expect. */
#define RUNS(n) :: script(n, 0) :: script(n, 1) :: script(n, 2) :: script(n, 3) :: script(n, 4) :: script(n, 5) :: script(n, 6) :: script(n, 7)

init {
	do
	:: write()
	:: take(0) :: take(1) THIRD(take)
#ifdef NOLOCK
	:: took(0) :: took(1) THIRD(took)
#endif
	:: answer(0) :: answer(1) THIRD(answer)
	:: settle(0) :: settle(1) THIRD(settle)
	:: crash(0) :: crash(1) THIRD(crash)
	:: look(0) :: look(1) THIRD(look)
	:: get_lock(0) :: get_lock(1) THIRD(get_lock)
	:: look_again(0) :: look_again(1) THIRD(look_again)
	:: decide(0) :: decide(1) THIRD(decide)
	RUNS(1)
	RUNS(2)
	RUNS(3)
	RUNS(4)
	RUNS(5)
	RUNS(6)
	RUNS(7)
#if RBACK > 0
	:: d_step { !rshot && rback < RBACK ->
		rshot = 1; old_lane = lane; i = 1;
		do
		:: i <= ROWS -> old_put[i] = put[i]; i++
		:: else -> break
		od;
		i = 0; printf("Redis: a snapshot\n") }
	:: d_step { rshot && lane != old_lane ->
		rshot = 0; rback++; lane = old_lane; i = 1;
		do
		:: i <= ROWS -> put[i] = old_put[i]; old_put[i] = 0; i++
		:: else -> break
		od;
		i = 0; old_lane = 0; printf("Redis goes back: the lane is %d\n", lane) }
#endif
#if DBACK > 0
	:: d_step { !shot && dback < DBACK ->
		shot = 1; old_seq = seq; old_must = must; old_batches = batches; old_sent = sent; old_waits = waits; printf("database: a snapshot\n") }
	:: d_step { shot && (old_batches != batches || old_sent != sent || old_waits != waits) ->
		shot = 0; dback++; lock = 0;
		seq = old_seq; must = old_must; batches = old_batches; sent = old_sent; waits = old_waits;
		old_seq = 0; old_must = 0; old_batches = 0; old_sent = 0; old_waits = 0;
		i = 0;
		do
		:: i < RELAYS -> if :: phase[i] == LOOKS || phase[i] == DECIDES || phase[i] == TOOK -> phase[i] = IDLE; name[i] = 0; expect[i] = 0; seen[i] = 0 :: else fi; i++
		:: else -> break
		od;
		i = 0; printf("the database goes back\n") }
#endif
	/* Nothing is lost silently. */
	:: d_step { lane == must && (GONE(1) || GONE(2) || GONE(3) || GONE(4) || GONE(5) || GONE(6) || GONE(7)) -> assert(false) }
#ifdef REACH
	:: d_step { REACH -> assert(false) }
#endif
	od
}
