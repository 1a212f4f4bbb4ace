#!/usr/bin/env bash
# Checks the models of this folder with spin, exhaustively within the bounds that the table
# shows, and that every variant is found to be broken.
#
#   run.sh               what fits in a minute
#   run.sh -long         larger bounds too: up to ten minutes, and 6 GB of memory
#   run.sh -trail NAME   only this run, and the steps to what it found
#
# With "-out FILE" before these it keeps what it prints in that file, if all is well.
#
# It needs spin and gcc (apt-get install spin gcc), and uses two cores. It fails if a run isn't
# complete, or doesn't end as it should.
set -euo pipefail
models=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

long='' only='' keep=''
if [[ ${1-} == -out ]]; then
	keep=$(realpath -m "${2:?which file}")
	shift 2
fi
case ${1-} in
'') ;;
-long) long=1 ;;
-trail) only=${2:?which run} ;;
*) sed -n '5,9s/^# *//p' "$0" >&2; exit 2 ;;
esac
for tool in spin gcc; do
	command -v $tool >/dev/null || { echo "$tool is missing: apt-get install spin gcc" >&2; exit 2; }
done

work=$(mktemp -d)
set -m # each search is a process group, so that it can be ended as a whole
trap 'for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done; rm -rf "$work"' EXIT
cd "$work"

width=$(($(nproc) > 1 ? 2 : 1)) # searches at a time
jobs=()                         # their process ids, in the order of the table
runs=0 states=0 failed=0        # of those in the table
declare -A variant=()           # found, or missed once

say() { tee -a table; }
row() { printf '%-18s %-12s %-48s %-8s %10s %6s %6s %6s\n' "$@"; }

# run NAME PROPERTIES BOUNDS EXPECTED FLAGS: FLAGS are the model's, but those that begin with
# + are the C compiler's. @NAME is the model's file, NAME.pml, if it isn't redlock.pml.
# EXPECTED is "holds", "broken" or "reached".
run() {
	[[ -z $only || $only == "$1" ]] || return 0
	local -a busy
	while mapfile -t busy < <(jobs -pr) && ((${#busy[@]} >= width)); do
		wait -n || true
		collect
	done
	local dir=$work/${#jobs[@]}
	mkdir "$dir"
	(cd "$dir" && search "$@") >"$dir/rows" 2>"$dir/problems" &
	jobs+=($!)
}

# collect takes the results of the searches that have ended, in their order.
collect() {
	local dir name expected ok stored
	while ((runs < ${#jobs[@]})) && ! kill -0 "${jobs[runs]}" 2>/dev/null; do
		dir=$work/$runs
		runs=$((runs + 1))
		say <"$dir/rows"
		cat "$dir/problems" >&2
		if [[ ! -e $dir/result ]]; then
			failed=1
			continue
		fi
		read -r name expected ok stored <"$dir/result"
		states=$((states + stored))
		if [[ $expected == broken ]]; then
			((ok)) && : "${variant[${name%%/*}]:=found}" || variant[${name%%/*}]=missed
		fi
		((ok)) || failed=1
		rm -r "$dir"
	done
}

# search does what run is told, in a folder of its own.
search() {
	local name=$1 properties=$2 bounds=$3 expected=$4
	shift 4
	local -a flags=() cflags=(-w -DSAFETY -DNOREDUCE -DMEMLIM=4000)
	[[ $expected != holds ]] || cflags+=(-O1) # the others are sooner done than optimised
	local flag model=redlock.pml
	for flag; do
		case $flag in
		@*) model=${flag#@}.pml ;;
		+*) cflags+=("-${flag#+}") ;;
		*) flags+=("$flag") ;;
		esac
	done
	for flag in unique order exclusion once; do
		[[ $properties != *$flag* && $properties != all ]] || flags+=("-D${flag^^}")
	done
	[[ $properties != *still* ]] || flags+=(-DSTILL) # not part of all: it bounds how late acquires are, and needs nodes with names
	cp -p "$models/$model" model.pml
	local ok=1 result=$expected
	{
		spin -a "${flags[@]}" model.pml && gcc "${cflags[@]}" -o pan pan.c
	} >build.out 2>&1 || { cat build.out >&2; return 1; }
	local table=20 # 2^20 slots of the hash table; it grows no more, and only costs time when full
	[[ $expected != holds ]] || table=24
	./pan -E -m100000 -w$table >out 2>&1 || true

	# A search that isn't complete proves nothing; one of these says so.
	local errors
	errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' out)
	case $expected in
	holds)
		if [[ $errors != 0 ]] || ! grep -q '^Full statespace search for:' out ||
			grep -qiE 'not completed|too small|out of memory|memlim|memory bound|truncated|bit statespace|hash-?compact' out; then
			ok=0 result='FAILED'
		fi
		;;
	*)
		# Only the assertion of the property is in the program.
		if [[ $errors != 1 ]] || ! grep -q '^pan:1: assertion violated' out; then
			ok=0 result='MISSED'
		fi
		;;
	esac

	local stored depth memory seconds
	stored=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)
	depth=$(sed -n 's/.*depth reached \([0-9]*\),.*/\1/p' out)
	memory=$(sed -n 's/^ *\([0-9]*\)[0-9.]*\ttotal actual memory usage.*/\1/p' out)
	seconds=$(sed -n 's/^pan: elapsed time \([0-9.]*\).*/\1/p' out)
	stored=$(printf '%.0f' "${stored:-0}")
	row "$name" "$properties" "$bounds" "$result" "$stored" "${depth:-?}" "${memory:-?}" "${seconds:-?}"
	if [[ -n $only || $expected == holds ]] && compgen -G '*.trail' >/dev/null; then
		spin -t -T "${flags[@]}" model.pml | sed '/^#processes/,$d; s/^/    /'
	fi
	if ! ((ok)); then
		grep -E 'pan:|error|warning' out >&2 || cat out >&2
	fi
	echo "$name $expected $ok $stored" >result
}

{
	printf 'model, %s form, %s, gcc %s, %s\n' "$([[ -n $long ]] && echo long || echo short)" "$(spin -V | sed 's/ *--.*//')" "$(gcc -dumpfullversion)" "$(date -u +%F)"
	row run property bounds result states depth MB s
} | say

any='-DSORT -DRANKS'
# All of it. Expiry at any moment, then Redlock's assumption on time.
run all-2 unique,order '2 attempts, any tokens' holds $any -DTOKENS=4
run all-2-timed all '2 attempts, any tokens, 1 second round' holds $any -DTOKENS=4 -DTIMED -DAGAIN=1
run all-2-loss all '2 attempts, any tokens, 1 round, 1 loss' holds $any -DTOKENS=4 -DTIMED -DAGAIN=0 -DLOSSES=1
run all-3 unique,order '3 attempts, any tokens, 1 round' holds $any -DATTEMPTS=3 -DTOKENS=6 -DAGAIN=0
# The parts.
run register-3 unique,order '3 attempts, 4 different tokens, 2 second rounds' holds $any -DATTEMPTS=3 -DTOKENS=4 -DAGAIN=2 -DNOLOCK
run lock-3 exclusion '3 attempts' holds -DSORT -DATTEMPTS=3 -DNOREGISTER -DTIMED
run lock-2-rolled exclusion '2 attempts, 1 rolled back' holds -DSORT -DNOREGISTER -DTIMED -DLOSSES=1 -DROLLED
# A holder that extends twice, and sets its lock again where it is gone.
run reset-2 exclusion '2 attempts, 2 extends, 2 losses' holds -DSORT -DNOREGISTER -DTIMED -DEXTENDS=2 -DRESET -DLOSSES=2
run reset-2-rolled exclusion '2 attempts, 2 extends, 1 rolled back' holds -DSORT -DNOREGISTER -DTIMED -DEXTENDS=2 -DRESET -DLOSSES=1 -DROLLED
run reset-2-still exclusion,still '2 attempts, 2 extends, 1 loss' holds -DNOREGISTER -DTIMED -DEXTENDS=2 -DRESET -DLOSSES=1
# What the tokens need of clocks when a node was rolled back.
run clocks unique,order 'clocks less than MaxTTL apart, 1 rolled back' holds @clocks -DSPREAD=1 -DREST=2 -DTICKS=2 -DCRASHES=1
# The hand-over on one Redis. Calls are run once, or late and twice.
run handover exclusion,once '2 waiters, 3 hand-overs, calls run once' holds @handover -DGIVES=3 -DRUNS=1
run handover-late exclusion '2 waiters, 2 hand-overs, calls run twice' holds @handover -DGIVES=2 -DRUNS=2
# Without exclusion the tokens are what they were.
run noheld-tokens unique,order '2 attempts, any tokens, 1 second round' holds $any -DTOKENS=4 -DAGAIN=1 -DNOHELD
run delany-tokens unique,order '2 attempts, any tokens, 1 second round' holds $any -DTOKENS=4 -DAGAIN=1 -DDELANY

if [[ -n $long || -n $only ]]; then
	run all-2-loss-long unique,order '2 attempts, any tokens, 1 loss' holds $any -DTOKENS=4 -DLOSSES=1
	run all-2-timed-long all '2 attempts, 3 different tokens' holds $any -DTOKENS=3 -DTIMED
	run all-2-both-long all '2 attempts, any tokens, 1 second round, 1 loss' holds $any -DTOKENS=4 -DTIMED -DAGAIN=1 -DLOSSES=1
	run all-3-loss-long unique,order '3 attempts, any tokens, 1 round, 1 loss' holds $any -DATTEMPTS=3 -DTOKENS=6 -DAGAIN=0 -DLOSSES=1
	run all-3-long unique,order '3 attempts, any tokens, 1 second round' holds $any -DATTEMPTS=3 -DTOKENS=6 -DAGAIN=1
	run register-3-any-long unique,order '3 attempts, any tokens, 2 second rounds' holds $any -DATTEMPTS=3 -DTOKENS=6 -DAGAIN=2 -DNOLOCK
	run register-3-long unique,order '3 attempts, 4 different tokens' holds $any -DATTEMPTS=3 -DTOKENS=4 -DNOLOCK
	run lock-3-long exclusion '3 attempts, 2 losses' holds -DSORT -DATTEMPTS=3 -DNOREGISTER -DTIMED -DLOSSES=2
	run lock-2-rolled-long exclusion '2 attempts, 2 rolled back' holds -DSORT -DNOREGISTER -DTIMED -DLOSSES=2 -DROLLED
	run all-2-rolled-long all '2 attempts, any tokens, 1 round, 1 rolled back' holds $any -DTOKENS=4 -DTIMED -DAGAIN=0 -DLOSSES=1 -DROLLED
	run reset-2-all-long all '2 attempts, any tokens, 1 round, 2 extends, 1 loss' holds $any -DTOKENS=4 -DTIMED -DAGAIN=0 -DEXTENDS=2 -DRESET -DLOSSES=1
	run clocks-2-long unique,order 'clocks less than MaxTTL apart, 2 rolled back' holds @clocks -DSPREAD=1 -DREST=2 -DTICKS=2 -DCRASHES=2
	run clocks-ahead-long unique,order 'votes less than MaxTTL ahead, 1 rolled back' holds @clocks -DSPREAD=2 -DREST=2 -DTICKS=2 -DCRASHES=1 -DAHEAD=1
	run handover-release-long exclusion '2 waiters, 3 hand-overs, releases run twice' holds @handover -DGIVES=3 -DRUNS=2 -DASKRUNS=1
	run handover-acquire-long exclusion,once '2 waiters, 3 hand-overs, acquires run twice' holds @handover -DGIVES=3 -DRUNS=1 -DASKRUNS=2
	run handover-other-long exclusion '1 waiter here, 1 elsewhere, calls run twice' holds @handover -DGIVES=2 -DRUNS=2 -DOTHERS=1
	# The symmetries change nothing: the same without them.
	run plain-2-long unique,order '2 attempts, 3 different tokens, plain' holds -DTOKENS=3
fi

# The variants, searched breadth first: the shortest way to the violation.
run noheld exclusion '2 attempts' broken -DNOHELD -DTIMED -DTOKENS=2 +DBFS
run nocompare/unique unique '2 attempts' broken -DNOCOMPARE -DTOKENS=2 +DBFS
run nocompare/order order '2 attempts' broken -DNOCOMPARE -DTOKENS=2 +DBFS
run incr/unique unique '2 attempts' broken -DINCR +DBFS
run incr/order order '3 attempts' broken -DINCR -DATTEMPTS=3 +DBFS
run forget/unique unique '2 attempts, 1 loss' broken -DFORGET -DTOKENS=2 -DLOSSES=1 +DBFS
run forget/order order '2 attempts, 1 loss' broken -DFORGET -DTOKENS=2 -DLOSSES=1 +DBFS
run forget/exclusion exclusion '2 attempts, 1 loss' broken -DFORGET -DTIMED -DTOKENS=2 -DLOSSES=1 +DBFS
run believed/unique unique '2 attempts, 1 rolled back' broken -DROLLED -DBELIEVED $any -DNOLOCK -DTOKENS=3 -DAGAIN=1 -DLOSSES=1 +DBFS
run believed/order order '2 attempts, 1 rolled back' broken -DROLLED -DBELIEVED $any -DNOLOCK -DTOKENS=3 -DAGAIN=1 -DLOSSES=1 +DBFS
run lasting/exclusion exclusion '2 attempts, 1 rolled back' broken -DROLLED -DBELIEVED -DNOREST -DTIMED -DTOKENS=2 -DLOSSES=1 +DBFS
# The lock is set again: on a node that doesn't count; by the call that counts it, also after somebody has deleted it;
# with a vote.
run restless exclusion '2 attempts, 2 extends, 2 losses' broken -DNOREGISTER -DTIMED -DEXTENDS=2 -DRESET -DLOSSES=2 -DRESTLESS -DSORT +DBFS
run atonce still '2 attempts, 2 deleted' broken -DNOREGISTER -DTIMED -DDROPS=2 -DATONCE +DBFS
run lowers order '3 attempts, one after the other' broken -DTIMED -DRESET -DATTEMPTS=3 -DTOKENS=2 -DAGAIN=0 -DLOWERS -DSORT -DBYTURNS +DBFS
run clocks-lowers order 'equal clocks, 1 rolled back' broken @clocks -DLOWERS -DSPREAD=0 -DREST=1 -DTICKS=1 -DCRASHES=1 +DBFS
# With clocks: a record of an older memory is believed; with, besides, clients that never settle on less than
# the clocks that they are told; a restarted node counts at once; the clocks are apart by more than MaxTTL.
run clocks-believed order 'equal clocks, 1 rolled back' broken @clocks -DBELIEVED -DSPREAD=0 -DREST=1 -DTICKS=1 -DCRASHES=1 +DBFS
run clocks-told order 'clocks less than MaxTTL apart, 1 rolled back' broken @clocks -DBELIEVED -DTOLD -DSPREAD=1 -DREST=2 -DTICKS=2 -DCRASHES=1 +DBFS
run clocks-norest order 'equal clocks, 1 rolled back' broken @clocks -DNOREST -DSPREAD=0 -DREST=1 -DTICKS=1 -DCRASHES=1 +DBFS
run clocks-apart order 'clocks more than MaxTTL apart, 1 rolled back' broken @clocks -DSPREAD=2 -DREST=1 -DTICKS=1 -DCRASHES=1 +DBFS
# The hand-over of f1f8dd4, whose releases tell the next value by reply and message: a reply is lost, or a call
# is run again. Two answers to one release that both tell; a message that is heard twice.
run handover-lost exclusion '2 waiters, a lost reply' broken @handover -DOLD -DNORETRY -DGIVES=2 +DBFS
run handover-repeated exclusion '2 waiters, a repeated release' broken @handover -DOLD -DGIVES=2 +DBFS
run handover-all once '2 waiters, two answers' broken @handover -DALLTELL -DGIVES=2 +DBFS
run handover-twice exclusion '2 waiters, a message heard twice' broken @handover -DHEARTWICE -DFORGETFUL -DGIVES=2 +DBFS
run delany exclusion '3 attempts' broken -DDELANY -DTIMED -DATTEMPTS=3 -DTOKENS=2 -DAGAIN=0 +DBFS

# What the model must be able to do, so that what holds in it means something.
run first-2 reach '2 return by their first round' reached -DREACH="'(rounds1==2)'" -DTIMED -DTOKENS=2 +DBFS
run second-2 reach '2 return by their second round' reached -DREACH="'(rounds2==2)'" -DTOKENS=4 $any +DBFS
run first-3 reach '3 return by their first round' reached -DREACH="'(rounds1==3)'" -DATTEMPTS=3 -DTOKENS=3 -DAGAIN=0 $any +DBFS
run second-3 reach '3 return by their second round' reached -DREACH="'(rounds2==3)'" -DATTEMPTS=3 -DTOKENS=4 -DSORT -DBYTURNS -DSECONDONLY
run extended reach 'an extended lock, and another after it' reached -DREACH="'(rounds1==2&&extended[0]==2)'" -DTIMED -DTOKENS=2 -DSORT +DBFS
run paused reach 'a holder that goes on beyond its validity' reached -DREACH="'(phase[0]==HOLDS&&phase[1]==HOLDS)'" -DTIMED -DTOKENS=2 -DSORT +DBFS
run lost reach '2 return, a node lost its memory' reached -DREACH="'(rounds1==2&&losses==1)'" -DTIMED -DTOKENS=2 -DLOSSES=1 -DSORT +DBFS
run passed-on reach 'a lock that is passed on twice' reached @handover -DREACH="'(phase[0]==GONE&&phase[1]==GONE&&phase[2]==HOLDS&&value[2]>3)'" -DGIVES=3 -DRUNS=1 +DBFS

while ((runs < ${#jobs[@]})); do
	wait -n || true
	collect
done
if [[ -n $only ]]; then
	((runs > 0)) || { echo "there is no run $only" >&2; exit 2; }
	exit $failed
fi
found=0
for v in "${!variant[@]}"; do
	[[ ${variant[$v]} == missed ]] || found=$((found + 1))
done
all=19 # as many as there are above
((found == all && ${#variant[@]} == all)) || failed=1
if ((failed)); then
	echo "model: FAILED runs=$runs states=$states violations=$found/$all"
	exit 1
fi
echo "model: ok runs=$runs states=$states violations=$found/$all" | say
if [[ -n $keep ]]; then
	mkdir -p "$(dirname "$keep")"
	cat table >"$keep"
fi
