#!/usr/bin/env bash
# Plants each seeded bug of this folder in a copy of the tree and checks that the test
# which it names finds it.
#
# usage: testdata/mutants/run.sh [part of a bug's name]
#
# internal/mutants/main.go says what the file of a bug looks like. The test's line may end with a flag of the test, as -walk.steps=15000: a walk has
# as many steps as find the bug in all but one of ten thousand runs.
#
# The test must pass without the bug. With it, the package must still build, and the
# test must fail, in one of six runs. The last line says how many bugs were found (killed)
# and how many were not; the exit status is 0 only if all were. Each bug's line says how
# many seconds it took to build, and to fail. A bug that changes nothing but Lua needs no build:
# its test runs in a binary that reads the scripts from the tree instead of embedding them.
#
# MUTANT_SHARE=n is for CI, which has no time for all. It tries each bug that is new, whose function has changed or whose test has since all were last
# killed, and of the others one in n, others with each commit. The file proven has the commit at which all were killed; a run of all,
# on a tree without changes, writes it. MUTANT_MOST=n bounds how many are tried, others with each commit, and says how many were left out: a
# change that moves or renames what most code uses concerns nearly all, until the next run of all.
#
# MUTANT_JOBS is how many are tried at a time: by default three for each core, since a test
# mostly waits. Each has a copy of the tree of its own, so that it builds only what its
# bug changes. What passes without a bug is built once, for all.
set -euo pipefail
export LC_ALL=C # of numbers

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
filter=${1:-}
bugs=$PWD/testdata/mutants
jobs=${MUTANT_JOBS:-$(($(nproc 2>/dev/null || echo 2) * 3))}
work=$(mktemp -d)
export GIT_CEILING_DIRECTORIES=$work # the copies are no repositories, whatever is above them
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

# field BUG NAME is what its header says.
field() { sed -n "s/^# $2: *//p" "$1"; }

# build OUTPUT PACKAGES... makes test binaries, as quickly as it can. Vet is for lint, and nobody debugs
# the binaries. Each runs one test, so it isn't optimised (-N -l). The compiler collects its garbage later (GOGC).
# It compiles the package with the bug, and what imports that only if its API has changed (see compile).
# Without its path a copy of the tree builds only what Go's cache doesn't have: a bug that was built before, of
# the same tree, isn't built again.
build() {
	local output=$1
	shift
	GOGC=400 COMPILED=$work/compiled go test -c -trimpath -vet=off -gcflags='-N -l -dwarf=false' -ldflags='-s -w' \
		-toolexec="$work/compile" -o "$output" "$@" >"$out" 2>&1 </dev/null
}

# binary PACKAGE is the name of its test binary, in bin or disk.
binary() { printf '%s.test' "${1//\//-}"; }

# build_all FOLDER PACKAGES... makes the test binaries of packages. go test -c names them by the last part of the path, so two with the same last part
# are built one after the other.
build_all() {
	local folder=$1 package left=("${@:2}") now later
	while ((${#left[@]} > 0)); do
		now=() later=()
		for package in "${left[@]}"; do
			if [[ " ${now[*]/#*\//} " == *" ${package##*/} "* ]]; then later+=("$package"); else now+=("$package"); fi
		done
		build "$folder/" "${now[@]}" || return 1
		for package in "${now[@]}"; do mv "$folder/${package##*/}.test" "$folder/$(binary "$package")"; done
		left=("${later[@]}")
	done
}

# runs BINARY PACKAGE TEST ARGUMENTS... runs a test, with the flag $flag if there is one, as go test does; the output is in $out. A bug may make a test hang:
# $bound is how long it may take.
runs() {
	local binary=$1 package=$2 test=$3
	shift 3
	(SCRIPTS=$PWD && export SCRIPTS && cd "$package" && "$binary" -test.run "$test" -test.timeout "$bound" -test.failfast ${flag:+"$flag"} "$@") >"$out" 2>&1 </dev/null
}

since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

# complain NAME MESSAGE [FILE]
complain() {
	printf '%-40s SURVIVED: %s\n' "$1" "$2"
	if [[ -n ${3:-} ]]; then sed 's/^/    /' "$3" | tail -n 40; fi
}

# checks NAME BINARY PACKAGE TEST: the test passes on the tree without a bug, and is there.
checks() {
	local name=$1 binary=$2 seen bound=15m # it passes, however slow the machine is
	shift
	seen=$work/sound/$(printf '%s' "$* $flag" | cksum | tr -d ' ')
	shift
	if [[ -e $seen ]]; then return 0; fi
	if ! runs "$binary" "$1" "$2"; then
		complain "$name" "go test $1 -run '$2' fails without the bug" "$out"
		return 1
	fi
	if grep -q 'no tests to run' "$out"; then
		complain "$name" "go test $1 -run '$2' runs no test" "$out"
		return 1
	fi
	touch "$seen"
}

# only_lua BUG says whether the bug changes nothing but scripts.
only_lua() { ! grep '^@ ' "$1" | grep -qv '\.lua$'; }

# try BUG seeds one bug in the tree where we are.
try() {
	local bug=$1 binary=$binary bound=90s name test why package run flag start built sound lua=
	name=$(basename "$bug" .bug)
	test=$(field "$bug" test) why=$(field "$bug" why)
	if [[ ! $test =~ ^(\./[a-z/]+)\ -run\ \'([^\']+)\'(\ (-[a-z.]+=[0-9]+))?$ || -z $why ]]; then
		complain "$name" "the header needs one line \"# test: ./package -run 'TestName\$'\" and a line \"# why:\""
		return
	fi
	package=${BASH_REMATCH[1]} run=${BASH_REMATCH[2]} flag=${BASH_REMATCH[4]:-}
	sound=$work/bin/$(binary "$package")
	if only_lua "$bug"; then lua=yes sound=$work/disk/$(binary "$package") binary=$sound; fi
	checks "$name" "$sound" "$package" "$run" || return 0
	if ! "$work/mutants" seed "$kept" "$bug" >"$out" 2>&1; then
		complain "$name" 'it cannot be planted: bring it up to date' "$out"
		return
	fi
	start=$EPOCHREALTIME
	if [[ -z $lua ]] && ! build "$binary" "$package"; then
		complain "$name" 'the package does not build with the bug' "$out"
	else
		built=$(since "$start") start=$EPOCHREALTIME
		# What goes wrong by a race may go well once: then the test has five more runs to find it.
		if runs "$binary" "$package" "$run" && runs "$binary" "$package" "$run" -test.count=5; then
			complain "$name" "go test $test passes: $why"
		else
			touch "$work/killed/$name"
			printf '%-40s %4ss + %4ss  killed by %s\n' "$name" "$built" "$(since "$start")" "$test"
		fi
	fi
	"$work/mutants" remove "$kept"
}

# take JOB tries the bugs that nobody else has taken. Each job begins elsewhere, so that it
# first builds what the others don't.
take() {
	local bug out=$work/$1/out kept=$work/$1/kept binary=$work/$1/mutant.test start=$((${#chosen[@]} * $1 / jobs))
	cd "$work/$1/tree"
	for bug in "${chosen[@]:start}" "${chosen[@]::start}"; do
		if mkdir "$work/taken/$(basename "$bug")" 2>/dev/null; then try "$bug"; fi
	done
}

chosen=()
for bug in "$bugs"/*.bug; do
	if [[ -e $bug && $(basename "$bug" .bug) == *"$filter"* ]]; then chosen+=("$bug"); fi
done
if ((${#chosen[@]} == 0)); then
	echo "no bug in testdata/mutants has \"$filter\" in its name" >&2
	exit 1
fi
go build -o "$work/mutants" ./internal/mutants

head=$(git rev-parse HEAD 2>/dev/null || echo none)
if [[ -n ${MUTANT_SHARE:-} ]]; then
	of=${#chosen[@]} proven=$(cat "$bugs/proven" 2>/dev/null || true)
	if git cat-file -e "$proven^{commit}" 2>/dev/null; then
		"$work/mutants" choose "$proven" "$MUTANT_SHARE" "$head" "${chosen[@]}" >"$work/chosen"
		mapfile -t chosen <"$work/chosen"
	else
		echo "mutants: the commit in testdata/mutants/proven isn't here, so all are tried"
	fi
	echo "mutants: ${#chosen[@]} of $of: those that changes since ${proven:0:7} concern, and one in $MUTANT_SHARE of the others"
fi
if [[ -n ${MUTANT_MOST:-} ]] && ((${#chosen[@]} > MUTANT_MOST)); then
	left=$((${#chosen[@]} - MUTANT_MOST))
	mapfile -t chosen < <(for bug in "${chosen[@]}"; do # by a digest of the commit and the name: others with each commit
		printf '%s %s\n' "$(printf '%s %s' "$head" "${bug##*/}" | sha256sum)" "$bug"
	done | sort | sed "${MUTANT_MOST}q" | sed 's/^[^/]*//')
	echo "mutants: $left of them are left out for lack of time, others with each commit; make mutants tries all, and writes testdata/mutants/proven"
fi

if ((${#chosen[@]} == 0)); then
	echo 'mutants: none to try'
	exit 0
fi

# What git would commit, as it is now.
mkdir "$work"/{bin,disk,taken,sound,killed,compiled}
go build -o "$work/compile" ./testdata/mutants/compile
git ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' file; do
		if [[ -e $file || -L $file ]]; then printf '%s\0' "$file"; fi
	done | tar --create --null --no-recursion --files-from=- --file="$work/tree.tar"
for ((job = 0; job < jobs; job++)); do
	mkdir -p "$work/$job/tree"
	tar --extract --file="$work/tree.tar" --directory="$work/$job/tree"
done

cd "$work/0/tree"
out=$work/out
mapfile -t packages < <(sed -nE 's|^# test: *(\./[a-z/]+) .*|\1|p' "${chosen[@]}" | sort -u)
# A package of a module of its own is built from the root, as the others are, by a workspace.
mapfile -t modules < <(for module in "${packages[@]}"; do
	until [[ -e $module/go.mod ]]; do module=$(dirname "$module"); done
	if [[ $module != . ]]; then echo "$module"; fi
done | sort -u)
for module in "${modules[@]}"; do
	for ((job = 0; job < jobs; job++)); do
		(cd "$work/$job/tree" && if [[ -e go.work ]]; then go work use "$module"; else go work init . "$module"; fi)
	done
done
if ! build_all "$work/bin" "${packages[@]}"; then
	cat "$out"
	echo 'the tests do not build without a bug' >&2
	exit 1
fi

# The binaries for bugs in Lua: their tree reads the scripts under $SCRIPTS when a test begins.
mapfile -t packages < <(for bug in "${chosen[@]}"; do
	if only_lua "$bug"; then sed -nE 's|^# test: *(\./[a-z/]+) .*|\1|p' "$bug"; fi
done | sort -u)
if ((${#packages[@]} > 0)); then
	files=(internal/asynq/scripts.go internal/store/scripts/script.go lock/scripts.go lock/redlock/scripts.go lock/fence/scripts.go)
	mkdir "$work/kept"
	tar --extract --file="$work/tree.tar" --directory="$work/kept" "${files[@]}"
	for file in "${files[@]}"; do
		sed -i -e '/^\/\/go:embed /d' -e 's|^\t"embed"$|\t"io/fs"; "os"|' \
			-e "s#^var \(scripts\|files\) embed.FS\$#var \1 = os.DirFS(os.Getenv(\"SCRIPTS\") + \"/${file%/*}\").(interface { fs.ReadDirFS; fs.ReadFileFS })#" "$file"
	done
	if ! build_all "$work/disk" "${packages[@]}"; then
		cat "$out"
		echo 'the tests do not build with scripts from the disk' >&2
		exit 1
	fi
	cp -r "$work/kept/." .
fi

for ((job = 0; job < jobs; job++)); do take "$job" & done
wait

killed=$(($(find "$work/killed" -type f | wc -l)))
survived=$((${#chosen[@]} - killed))
echo "mutants: $killed killed, $survived survived"
((survived == 0))
if [[ -z $filter && -z ${MUTANT_SHARE:-} && -z ${MUTANT_MOST:-} && -z $(git -C "$bugs" status --porcelain) ]]; then echo "$head" >"$bugs/proven"; fi
