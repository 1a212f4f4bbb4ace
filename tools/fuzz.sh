#!/usr/bin/env bash
# Runs every fuzz target of the module for a while each.
#
# usage: tools/fuzz.sh [time per target, such as 20s]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
each=${1:-20s}
ran=0
while read -r package target; do
	echo "fuzz: $package $target for $each"
	go test "$package" -run "^$target\$" -fuzz "^$target\$" -fuzztime "$each" </dev/null
	ran=$((ran + 1))
done < <(
	# go test prints a package's targets first and its name at the end.
	go test -list '^Fuzz' ./... | awk '/^Fuzz/ { t[n++] = $1 } /^ok/ { for (i = 0; i < n; i++) print $2, t[i]; n = 0 }'
)
echo "fuzz: $ran targets"
((ran > 0))
