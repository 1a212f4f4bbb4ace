#!/usr/bin/env bash
# Checks outbox.pml with spin, exhaustively within the bounds that the table shows, and that every variant is found to be broken.
#
#   run.sh               what takes a few seconds
#   run.sh -long         larger bounds too: some minutes, and 4 GB of memory
#   run.sh -trail NAME   only this run, and the steps to what it found
#
# It needs spin and gcc (apt-get install spin gcc). It fails if a run isn't complete, or doesn't end as it should.
set -euo pipefail
model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/outbox.pml

long='' only=''
case ${1-} in
'') ;;
-long) long=1 ;;
-trail) only=${2:?which run} ;;
*) sed -n '4,6s/^# *//p' "$0" >&2; exit 2 ;;
esac
for tool in spin gcc; do
	command -v $tool >/dev/null || { echo "$tool is missing: apt-get install spin gcc" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

runs=0 states=0 variants=0 found=0 failed=0
row() { printf '%-12s %-62s %-8s %10s %6s %7s\n' "$@"; }

# run NAME BOUNDS EXPECTED FLAGS: EXPECTED is "holds", "broken" or "reached".
run() {
	local name=$1 bounds=$2 expected=$3
	shift 3
	[[ -z $only || $only == "$name" ]] || return 0
	runs=$((runs + 1))
	cd "$(mktemp -d -p "$work")"
	local -a cflags=(-w -DSAFETY -DNOREDUCE -DMEMLIM=4000)
	local table=20
	if [[ $expected == holds ]]; then
		cflags+=(-O1) table=24
	else
		cflags+=(-DBFS) # the shortest way
	fi
	spin -a "$@" "$model" >build.out 2>&1 && gcc "${cflags[@]}" -o pan pan.c >>build.out 2>&1 || { cat build.out >&2; failed=1; return 0; }
	./pan -E -m100000 -w$table >out 2>&1 || true

	# A search that isn't complete proves nothing; one of these says so.
	local errors stored depth seconds result=$expected
	errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' out)
	if [[ $expected == holds ]]; then
		if [[ $errors != 0 ]] || ! grep -q '^Full statespace search for:' out ||
			grep -qiE 'not completed|too small|out of memory|memlim|memory bound|truncated|bit statespace|hash-?compact' out; then
			result=FAILED
		fi
	elif [[ $errors != 1 ]] || ! grep -q '^pan:1: assertion violated' out || grep -q 'invalid array index' out; then
		result=MISSED
	fi
	if [[ $expected == broken ]]; then
		variants=$((variants + 1))
		[[ $result == MISSED ]] || found=$((found + 1))
	fi
	stored=$(printf '%.0f' "$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out | grep . || echo 0)")
	depth=$(sed -n 's/.*depth reached \([0-9]*\),.*/\1/p' out)
	seconds=$(sed -n 's/^pan: elapsed time \([0-9.]*\).*/\1/p' out)
	states=$((states + stored))
	row "$name" "$bounds" "$result" "$stored" "${depth:-?}" "${seconds:-?}"
	if [[ -n $only || $result == FAILED ]] && compgen -G '*.trail' >/dev/null; then
		spin -k *.trail -T "$@" "$model" | sed '/^#processes/,$d; s/^/    /'
	fi
	if [[ $result != "$expected" ]]; then
		grep -E 'pan:|error|warning' out >&2 || cat out >&2
		failed=1
	fi
}

row run bounds result states depth s
run kept '3 relays, 3 rows' holds -DRELAYS=3 -DNAMES=3
run redis '2 relays, 3 rows, Redis goes back twice' holds -DNAMES=3 -DRBACK=2
run database '2 relays, 3 rows, 6 batches, the database goes back' holds -DNAMES=6 -DDBACK=1
run both '2 relays, 3 rows, 4 batches, both go back' holds -DNAMES=4 -DDBACK=1 -DRBACK=1
if [[ -n $long || -n $only ]]; then
	run redis-long '3 relays, 3 rows, Redis goes back three times' holds -DRELAYS=3 -DNAMES=3 -DRBACK=3
	run database-long '2 relays, 3 rows, 7 batches, the database goes back twice' holds -DNAMES=7 -DDBACK=2
	run both-long '2 relays, 3 rows, 6 batches, both go back' holds -DNAMES=6 -DDBACK=1 -DRBACK=1
fi

run nolane '2 rows' broken -DNOLANE -DROWS=2 -DNAMES=2
run nononce '3 rows, the database goes back' broken -DNONONCE -DNAMES=4 -DDBACK=1
run noexpect '3 rows, both go back' broken -DNOEXPECT -DNAMES=4 -DDBACK=1 -DRBACK=1
run stalesent '3 rows, the database goes back' broken -DSTALESENT -DNAMES=4 -DDBACK=1
run anyorder '3 rows, Redis goes back twice' broken -DANYORDER -DNAMES=3 -DRBACK=2
run anynonce '2 rows, the database goes back' broken -DANYNONCE -DROWS=2 -DNAMES=3 -DDBACK=1
run jumpalarm '2 rows, Redis goes back' broken -DJUMPALARM -DROWS=2 -DNAMES=3 -DRBACK=1
run keepmust '2 rows, Redis goes back twice' broken -DKEEPMUST -DROWS=2 -DNAMES=2 -DRBACK=2
run lookonce '2 rows' broken -DLOOKONCE -DROWS=2 -DNAMES=2
run nolock '2 rows' broken -DNOLOCK -DROWS=2 -DNAMES=3
run newnonce '2 rows' broken -DNEWNONCE -DROWS=2 -DNAMES=3

# What the model must be able to do, so that what holds in it means something.
run all '3 rows, all sent' reached -DREACH="'(must==3)'" -DNAMES=3
run healed '3 rows, Redis went back, and all are in' reached -DREACH="'(rback==1&&must==3&&lane==3)'" -DNAMES=3 -DRBACK=1
run jumped '2 rows, late calls put both in again' reached -DREACH="'(rback==1&&must==0&&lane==2)'" -DROWS=2 -DNAMES=2 -DRBACK=1
run said '2 rows, one twice, and it was said' reached -DREACH="'(alarm&&put[1]==2)'" -DROWS=2 -DNAMES=4 -DDBACK=1

if [[ -n $only ]]; then
	((runs > 0)) || { echo "there is no run $only" >&2; exit 2; }
	exit $failed
fi
if ((failed)); then
	echo "outbox model: FAILED runs=$runs states=$states violations=$found/$variants"
	exit 1
fi
echo "outbox model: ok runs=$runs states=$states violations=$found/$variants"
