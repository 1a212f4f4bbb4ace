#!/usr/bin/env bash
# Applies each seeded bug of this folder to a copy of the tree and checks that the test
# which the patch names finds it.
#
# usage: testdata/mutants/run.sh [part of a patch's name]
#
# A patch is a unified diff (git apply, -p1) under a header of two kinds of lines:
#
#   # test: ./package -run 'TestName$'
#   # why: what goes wrong with this bug in
#
# The test must pass without the patch. With it, the package must still build, and the
# test must fail, in one of six runs. The last line says how many patches were found (killed)
# and how many were not; the exit status is 0 only if all were. Each patch's line says how
# many seconds it took to build, and to fail. A patch that changes nothing but Lua needs no build:
# its test runs in a binary that reads the scripts from the tree instead of embedding them.
#
# MUTANT_JOBS is how many are tried at a time: by default three for each core, since a test
# mostly waits. Each has a copy of the tree of its own, so that it builds only what its
# patch changes. What passes without a patch is built once, for all.
set -euo pipefail
export LC_ALL=C # of numbers

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
filter=${1:-}
patches=$PWD/testdata/mutants
jobs=${MUTANT_JOBS:-$(($(nproc 2>/dev/null || echo 2) * 3))}
work=$(mktemp -d)
export GIT_CEILING_DIRECTORIES=$work # the copies are no repositories, whatever is above them
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

# field PATCH NAME is what its header says.
field() { sed -n "s/^# $2: *//p" "$1"; }

# build OUTPUT PACKAGES... makes test binaries, as quickly as it can. Vet is for lint, and nobody debugs
# the binaries. Each runs one test, so it isn't optimised (-N -l). The compiler collects its garbage later (GOGC).
# It compiles the package with the bug, and what imports that only if its API has changed (see compile).
# Without its path a copy of the tree builds only what Go's cache doesn't have: a patch that was built before, of
# the same tree, isn't built again.
build() {
	local output=$1
	shift
	GOGC=400 COMPILED=$work/compiled go test -c -trimpath -vet=off -gcflags='-N -l -dwarf=false' -ldflags='-s -w' \
		-toolexec="$work/compile" -o "$output" "$@" >"$out" 2>&1 </dev/null
}

# runs BINARY PACKAGE TEST ARGUMENTS... runs a test as go test does; the output is in $out.
runs() {
	local binary=$1 package=$2 test=$3
	shift 3
	(SCRIPTS=$PWD && export SCRIPTS && cd "$package" && "$binary" -test.run "$test" -test.timeout 90s -test.failfast "$@") >"$out" 2>&1 </dev/null
}

since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

# complain NAME MESSAGE [FILE]
complain() {
	printf '%-40s SURVIVED: %s\n' "$1" "$2"
	if [[ -n ${3:-} ]]; then sed 's/^/    /' "$3" | tail -n 40; fi
}

# checks NAME BINARY PACKAGE TEST: the test passes on the tree without a patch, and is there.
checks() {
	local name=$1 binary=$2 seen
	shift
	seen=$work/sound/$(printf '%s' "$*" | cksum | tr -d ' ')
	shift
	if [[ -e $seen ]]; then return 0; fi
	if ! runs "$binary" "$1" "$2"; then
		complain "$name" "go test $1 -run '$2' fails without the patch" "$out"
		return 1
	fi
	if grep -q 'no tests to run' "$out"; then
		complain "$name" "go test $1 -run '$2' runs no test" "$out"
		return 1
	fi
	touch "$seen"
}

# only_lua PATCH says whether the patch changes nothing but scripts.
only_lua() { ! grep -E '^(\+\+\+|---) [ab]/' "$1" | grep -qv '\.lua$'; }

# try PATCH seeds one bug in the tree where we are.
try() {
	local patch=$1 binary=$binary name test why package run start built sound lua=
	name=$(basename "$patch" .patch)
	test=$(field "$patch" test) why=$(field "$patch" why)
	if [[ ! $test =~ ^(\./[a-z/]+)\ -run\ \'([^\']+)\'$ || -z $why ]]; then
		complain "$name" "the header needs one line \"# test: ./package -run 'TestName\$'\" and a line \"# why:\""
		return
	fi
	package=${BASH_REMATCH[1]} run=${BASH_REMATCH[2]}
	sound=$work/bin/${package##*/}.test
	if only_lua "$patch"; then lua=yes sound=$work/disk/${package##*/}.test binary=$sound; fi
	checks "$name" "$sound" "$package" "$run" || return 0
	if ! git apply --check -p1 "$patch" >"$out" 2>&1; then
		complain "$name" 'the patch does not apply: bring it up to date' "$out"
		return
	fi
	git apply -p1 "$patch"
	start=$EPOCHREALTIME
	if [[ -z $lua ]] && ! build "$binary" "$package"; then
		complain "$name" 'the package does not build with the patch' "$out"
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
	git apply -p1 --reverse "$patch"
}

# take JOB tries the patches that nobody else has taken. Each job begins elsewhere, so that it
# first builds what the others don't.
take() {
	local patch out=$work/$1/out binary=$work/$1/mutant.test start=$((${#chosen[@]} * $1 / jobs))
	cd "$work/$1/tree"
	for patch in "${chosen[@]:start}" "${chosen[@]::start}"; do
		if mkdir "$work/taken/$(basename "$patch")" 2>/dev/null; then try "$patch"; fi
	done
}

chosen=()
for patch in "$patches"/*.patch; do
	if [[ -e $patch && $(basename "$patch" .patch) == *"$filter"* ]]; then chosen+=("$patch"); fi
done
if ((${#chosen[@]} == 0)); then
	echo "no patch in testdata/mutants has \"$filter\" in its name" >&2
	exit 1
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
for package in "${packages[@]}"; do
	if [[ ! -e $package/go.mod ]]; then continue; fi
	for ((job = 0; job < jobs; job++)); do
		(cd "$work/$job/tree" && if [[ -e go.work ]]; then go work use "$package"; else go work init . "$package"; fi)
	done
done
if ! build "$work/bin/" "${packages[@]}"; then
	cat "$out"
	echo 'the tests do not build without a patch' >&2
	exit 1
fi

# The binaries for patches of Lua: their tree reads the scripts under $SCRIPTS when a test begins.
mapfile -t packages < <(for patch in "${chosen[@]}"; do
	if only_lua "$patch"; then sed -nE 's|^# test: *(\./[a-z/]+) .*|\1|p' "$patch"; fi
done | sort -u)
if ((${#packages[@]} > 0)); then
	files=(internal/store/script.go lock/scripts.go lock/redlock/scripts.go lock/fence/scripts.go)
	mkdir "$work/kept"
	tar --extract --file="$work/tree.tar" --directory="$work/kept" "${files[@]}"
	for file in "${files[@]}"; do
		sed -i -e '/^\/\/go:embed /d' -e 's|^\t"embed"$|\t"io/fs"; "os"|' \
			-e "s|^var scripts embed.FS\$|var scripts = os.DirFS(os.Getenv(\"SCRIPTS\") + \"/${file%/*}\").(interface { fs.ReadDirFS; fs.ReadFileFS })|" "$file"
	done
	if ! build "$work/disk/" "${packages[@]}"; then
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
