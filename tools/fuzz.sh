#!/usr/bin/env bash
# Runs every fuzz target of the module for a while each, as many at a time as there are cores, each on one core.
#
# usage: tools/fuzz.sh [time per target, such as 20s]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export FUZZ_TIME=${1:-20s}

# targets prints the path of each package that has targets, and the name of one of them.
targets() {
	local file path dir
	while read -r path dir; do
		for file in "$dir"/*_test.go; do
			sed -nE "s#^func (Fuzz[A-Za-z0-9_]*)\(.*#$path \1#p" "$file"
		done
	done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./...)
}

# fuzz PACKAGE TARGET prints nothing before its end, so that two don't mix.
fuzz() {
	local output status=0
	output=$(go test "$1" -run "^$2\$" -fuzz "^$2\$" -fuzztime "$FUZZ_TIME" -parallel 1 2>&1 </dev/null) || status=1
	printf 'fuzz: %s %s for %s\n%s\n' "$1" "$2" "$FUZZ_TIME" "$output"
	return "$status"
}
export -f fuzz

all=$(targets)
ran=$(grep -c . <<<"$all")
echo "fuzz: $ran targets"
xargs -P "$(nproc 2>/dev/null || echo 2)" -L 1 bash -c 'fuzz "$@"' fuzz <<<"$all"
