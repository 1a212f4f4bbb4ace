/* What the tokens of redlock.Locker need of the nodes' clocks, for spin. README.md tells how to run it.
 *
 * redlock.pml has no clocks. It takes for granted that a node's clock, when the node counts again
 * after it lost its memory, is no less than any token that the node has voted for. This model
 * has clocks and asks when that is so. It has the registers alone, as redlock.pml with -DNOLOCK.
 *
 * Time is a number of ticks. Each node's clock is ahead of true time by a constant, from 0 to SPREAD
 *   ticks. Tokens are readings of clocks: a tick is TICK tokens, so that a few tokens
 *   more, as second rounds and margins need, are little against a tick.
 * A node has voted for token 1 long ago, and its snapshot is from then. When it crashes it goes back
 *   to that: RDB files, or an append-only file without its tail. It counts again REST ticks
 *   later, which is MaxTTL, and from then on votes for no token that is not ahead of what its clock
 *   shows then: of its floor. An older snapshot than the present register is the worst case: what
 *   a node refuses grows with its register.
 * A node refuses a token that is more than AHEAD ticks ahead of its clock, unless it is its
 *   register's next.
 * A client proposes any token up to the largest clock or register, and one more. So it may
 *   know no clock at all, and settle on last + 1. With -DTOLD it proposes what a clock shows, or
 *   one more; or else nothing, and then in a second round no less than the largest clock of
 *   those that a quorum has told it.
 * An attempt ends when its TTL is over: less than REST ticks after it began. Messages are
 *   late and repeated without bounds, as in redlock.pml.
 *
 * The variants, each of which must be found to be broken:
 *   -DBELIEVED  a node that was rolled back goes by its register, as that of commit f1f8dd4.
 *   -DNOREST    a restarted node counts at once.
 *   -DLOWERS    the holder of token 1 still extends its lock, and sets it again on a node that counts again: at any
 *               moment, since the request may be late. By that the node votes for token 1, and goes by it from then on.
 *               Without this flag a lock that is set again gets no vote, and leaves register and floor as they are: for
 *               these nothing happens.
 */
#ifndef SPREAD
#define SPREAD 1
#endif
#ifndef REST
#define REST 2
#endif
#ifndef AHEAD
#define AHEAD 100
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef TICKS
#define TICKS 5
#endif
#define TICK 2
#define ATTEMPTS 2
#define NODES 3

byte now;
byte ahead[NODES];      /* the node's clock, against true time */
byte last[NODES];       /* its register */
byte floor[NODES];      /* what its clock shows when it counts again: its votes are for more */
byte rest[NODES];       /* ticks until it counts */
byte crashes;

#define IDLE 0
#define TRYING 1
#define DONE 2
byte phase[ATTEMPTS];
byte first[ATTEMPTS];
byte second[ATTEMPTS];
byte age[ATTEMPTS];     /* ticks since it began */
byte told[ATTEMPTS];    /* the largest clock that it was told */
byte heard[ATTEMPTS];   /* by these nodes, a bit for each */
byte before[ATTEMPTS];  /* the largest token that somebody had returned with when it began */
byte voted1[ATTEMPTS], voted2[ATTEMPTS];
byte granted, largest;

byte i, most, least;    /* inside of a step only */

#define BIT(n) (1 << (n))
#define TWO(set) ((set) == 3 || (set) == 5 || (set) == 6 || (set) == 7)
#define CLOCK(n) (TICK*(now + ahead[n] + 1))
#define MAX(x, y) ((x) > (y) -> (x) : (y))

/* The register that the node goes by. */
#ifdef BELIEVED
#define REGISTER(n) last[n]
#else
#define REGISTER(n) (last[n] < floor[n] -> floor[n] : last[n])
#endif
#define LIMIT(n) (CLOCK(n) + TICK*AHEAD > REGISTER(n) + 1 -> CLOCK(n) + TICK*AHEAD : REGISTER(n) + 1)

inline bounds() {
	most = CLOCK(0); least = CLOCK(0);
	i = 1;
	do
	:: i < NODES ->
		if :: CLOCK(i) > most -> most = CLOCK(i) :: else fi;
		if :: CLOCK(i) < least -> least = CLOCK(i) :: else fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline begin(a) {
	atomic {
		phase[a] == IDLE ->
		phase[a] = TRYING;
		before[a] = largest;
		bounds();
#ifdef TOLD
		if
		:: first[a] = 0
		:: first[a] = least;
			do
			:: first[a] <= most -> first[a]++
			:: break
			od
		fi;
#else
		i = 0;
		do
		:: i < NODES -> if :: last[i] > most -> most = last[i] :: else fi; i++
		:: else -> break
		od;
		i = 0;
		first[a] = 2;
		do
		:: first[a] <= most -> first[a]++
		:: break
		od;
#endif
		most = 0; least = 0;
		printf("time %d: attempt %d begins: it proposes %d\n", now, a, first[a])
	}
}

/* A node answers, with its clock. Whether it votes is another step. */
inline tell(a, n) {
	d_step {
		phase[a] == TRYING && first[a] == 0 && second[a] == 0 && rest[n] == 0 && !(heard[a] & BIT(n)) ->
		heard[a] = heard[a] | BIT(n);
		if :: CLOCK(n) > told[a] -> told[a] = CLOCK(n) :: else fi;
		printf("time %d: node %d tells attempt %d its clock, %d, and its register, %d\n", now, n, a, CLOCK(n), REGISTER(n))
	}
}

inline propose_again(a) {
	atomic {
		phase[a] == TRYING && first[a] == 0 && second[a] == 0 && TWO(heard[a]) ->
		bounds();
		i = 0;
		do
		:: i < NODES -> if :: last[i] > most -> most = last[i] :: else fi; i++
		:: else -> break
		od;
		i = 0;
		second[a] = told[a];
		do
		:: second[a] <= most -> second[a]++
		:: break
		od;
		most = 0; least = 0;
		printf("time %d: attempt %d proposes %d in a second round\n", now, a, second[a])
	}
}

inline vote(a, n, t, votes) {
	d_step {
		t != 0 && phase[a] != DONE && rest[n] == 0 && !(votes & BIT(n)) && REGISTER(n) < t && t <= LIMIT(n) ->
		last[n] = t;
		votes = votes | BIT(n);
		printf("time %d: node %d, whose clock is %d, votes for attempt %d's token %d\n", now, n, CLOCK(n), a, t)
	}
}

inline win(a, t, votes) {
	d_step {
		phase[a] == TRYING && TWO(votes) ->
		printf("time %d: attempt %d returns with token %d\n", now, a, t);
#ifdef UNIQUE
		assert(t != granted);
#endif
#ifdef ORDER
		assert(t > before[a]);
#endif
#ifdef REACH
		assert(!(REACH));
#endif
		phase[a] = DONE;
		granted = t;
		if :: t > largest -> largest = t :: else fi;
		first[a] = 0; second[a] = 0; told[a] = 0; heard[a] = 0; voted1[a] = 0; voted2[a] = 0; before[a] = 0; age[a] = 0
	}
}

inline crash(n) {
	d_step {
		crashes < CRASHES ->
		crashes++;
		last[n] = 1;
#ifdef NOREST
		floor[n] = CLOCK(n);
#else
		rest[n] = REST;
		floor[n] = CLOCK(n) + TICK*REST;
#endif
#ifdef BELIEVED
		floor[n] = 0;
#endif
		printf("time %d: node %d, whose clock is %d, crashes and goes back to register 1\n", now, n, CLOCK(n))
	}
}

#ifdef LOWERS
inline reset(n) {
	d_step {
		floor[n] != 0 && rest[n] == 0 ->
		last[n] = 1;
		floor[n] = 0;
		printf("time %d: node %d sets the lock of token 1 again, and goes by that\n", now, n)
	}
}
#endif

#define LESS(x) if :: x > 0 -> x-- :: else fi
#define OLDER(a) if \
	:: phase[a] == TRYING && age[a] + 1 >= REST -> phase[a] = DONE; first[a] = 0; second[a] = 0; told[a] = 0; heard[a] = 0; \
		voted1[a] = 0; voted2[a] = 0; before[a] = 0; age[a] = 0 \
	:: phase[a] == TRYING && age[a] + 1 < REST -> age[a]++ \
	:: else \
	fi
inline tick() {
	d_step {
		now < TICKS ->
		now++;
		LESS(rest[0]); LESS(rest[1]); LESS(rest[2]);
		OLDER(0); OLDER(1)
	}
}

#ifdef TOLD
#define NODE(a, n) :: vote(a, n, first[a], voted1[a]) :: tell(a, n) :: vote(a, n, second[a], voted2[a])
#define AGAIN(a) :: propose_again(a) :: win(a, second[a], voted2[a])
#else
#define NODE(a, n) :: vote(a, n, first[a], voted1[a])
#define AGAIN(a)
#endif
#define ATTEMPT(a) :: begin(a) :: win(a, first[a], voted1[a]) AGAIN(a) NODE(a, 0) NODE(a, 1) NODE(a, 2)

active proctype world() {
	atomic {
		do
		:: ahead[0] < SPREAD -> ahead[0]++
		:: break
		od;
		do
		:: ahead[1] < SPREAD -> ahead[1]++
		:: break
		od;
		do
		:: ahead[2] < SPREAD -> ahead[2]++
		:: break
		od;
		last[0] = 1; last[1] = 1; last[2] = 1;
		printf("the nodes' clocks are ahead by %d, %d and %d\n", ahead[0], ahead[1], ahead[2])
	}
	do
	ATTEMPT(0)
	ATTEMPT(1)
	:: crash(0) :: crash(1) :: crash(2)
#ifdef LOWERS
	:: reset(0) :: reset(1) :: reset(2)
#endif
	:: tick()
	od
}
