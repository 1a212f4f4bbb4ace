#!/usr/bin/env bash
# Applies each seeded bug of this folder to a copy of the tree and checks that the test
# which the patch names finds it.
#
# usage: testdata/mutants/run.sh [part of a patch's name]
#
# A patch is a unified diff (git apply, -p1) under a header of two kinds of lines:
#
#   # test: ./package -run 'TestName$'    arguments of go test
#   # why: what goes wrong with this bug in
#
# The test must pass without the patch. With it, the package must still build, and the
# test must fail, in one of six runs. The last line says how many patches were found (killed) and how many
# were not; the exit status is 0 only if all were. Two run at a time, as two shards.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
filter=${1:-}
patches=$PWD/testdata/mutants
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without a shard, run both and add up what they say.
if [[ -z ${MUTANT_SHARD:-} ]]; then
	failed=0
	MUTANT_SHARD=0 testdata/mutants/run.sh "$filter" >"$work/0" 2>&1 </dev/null &
	MUTANT_SHARD=1 testdata/mutants/run.sh "$filter" >"$work/1" 2>&1 </dev/null || failed=1
	wait $! || failed=1
	grep -hv '^mutants: ' "$work/0" "$work/1" || true
	sum=$(sed -n 's/^mutants: \([0-9]*\) killed, \([0-9]*\) survived$/\1 \2/p' "$work/0" "$work/1" |
		awk '{ k += $1; s += $2 } END { print k + 0, s + 0 }')
	read -r killed survived <<<"$sum"
	if ((killed + survived == 0)); then
		echo "no patch in testdata/mutants has \"$filter\" in its name" >&2
		failed=1
	fi
	echo "mutants: $killed killed, $survived survived"
	exit $failed
fi
tree=$work/tree
out=$work/out
mkdir "$tree"

# What git would commit, as it is now. One folder for all patches keeps go's cache warm.
git ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' file; do
		if [[ -e $file || -L $file ]]; then printf '%s\0' "$file"; fi
	done |
	tar --create --null --no-recursion --files-from=- | tar --extract --directory="$tree"
export GIT_CEILING_DIRECTORIES=$work # the copy is no repository, whatever is above it
cd "$tree"

killed=0 survived=0
declare -A sound # tests that pass without a patch

# complain NAME MESSAGE [FILE]
complain() {
	survived=$((survived + 1))
	printf '%-32s SURVIVED: %s\n' "$1" "$2"
	if [[ -n ${3:-} ]]; then sed 's/^/    /' "$3" | tail -n 40; fi
}

# gotest ARGUMENTS... runs quietly; the output is in $out.
gotest() { go test -count=1 -timeout 90s "$@" >"$out" 2>&1 </dev/null; }

# checks NAME TEST: the test passes on the tree without a patch, and is there.
checks() {
	if [[ -n ${sound[$2]:-} ]]; then return 0; fi
	local -a args
	eval "args=($2)"
	if ! gotest "${args[@]}"; then
		complain "$1" "go test $2 fails without the patch" "$out"
		return 1
	fi
	if grep -qE 'no tests to run|no test files|matched no packages' "$out"; then
		complain "$1" "go test $2 runs no test" "$out"
		return 1
	fi
	sound[$2]=yes
}

turn=0
for patch in "$patches"/*.patch; do
	name=$(basename "$patch" .patch)
	[[ -e $patch && $name == *"$filter"* ]] || continue
	turn=$((turn + 1))
	((turn % 2 == MUTANT_SHARD)) || continue

	test=$(sed -n 's/^# test: *//p' "$patch")
	why=$(sed -n 's/^# why: *//p' "$patch")
	if [[ -z $test || $test == *$'\n'* || -z $why ]]; then
		complain "$name" 'the header needs one line "# test:" and a line "# why:"'
		continue
	fi
	checks "$name" "$test" || continue
	if ! git apply --check -p1 "$patch" >"$out" 2>&1; then
		complain "$name" 'the patch does not apply: bring it up to date' "$out"
		continue
	fi
	git apply -p1 "$patch"
	eval "args=($test)"
	# What goes wrong by a race may go well once: then the test has five more runs to find it.
	if gotest "${args[@]}" && gotest "${args[@]}" -count=5; then
		complain "$name" "go test $test passes: $why"
	elif grep -qE '\[(build|setup) failed\]' "$out"; then
		complain "$name" 'the package does not build with the patch' "$out"
	else
		killed=$((killed + 1))
		printf '%-32s killed by %s\n' "$name" "$test"
	fi
	git apply -p1 --reverse "$patch"
done

echo "mutants: $killed killed, $survived survived"
((survived == 0))
