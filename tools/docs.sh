#!/usr/bin/env bash
# Runs the commands that README.md, the files in docs/ and the pages of examples tell the reader to run, so that
# they stay true. A block of commands is run, from the root of the tree, if the line
# before its fence is "<!-- run -->":
#
#   <!-- run -->
#   ```sh
#   go test ./...
#   ```
#
# A block that fails, or takes longer than ten minutes, fails the script. So does a Go program
# (a ```go block that begins with "package main") that doesn't compile against this tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ ! -f README.md ]]; then
	echo 'there is no README.md' >&2
	exit 1
fi
mapfile -d '' files < <(find README.md docs examples -name '*.md' -print0 | sort -z)
# One file per block, named for the place it came from.
awk -v dir="$work" '
	/^<!-- run -->$/ { marked = 1; next }
	marked && /^```sh$/ {
		marked = 0; inside = 1
		place = FILENAME; gsub("/", "%", place)
		file = sprintf("%s/%s:%05d", dir, place, FNR)
		printf "" > file
		next
	}
	marked { printf "%s:%d: <!-- run --> must stand right before ```sh\n", FILENAME, FNR; bad = 1; exit 1 }
	inside && /^```$/ { inside = 0; close(file); next }
	inside { print > file }
	END { exit bad }
' "${files[@]}" >&2

ran=0
for block in "$work"/*; do
	[[ -e $block ]] || continue
	place=$(basename "$block" | sed 's|%|/|g; s|:0*|:|')
	echo "docs: $place"
	sed 's/^/  $ /' "$block"
	timeout 600 bash -euo pipefail "$block" </dev/null
	ran=$((ran + 1))
done
echo "docs: blocks of commands run: $ran"
((ran > 0))

mkdir "$work/go"
awk -v dir="$work/go" '
	/^```go$/ { fence = 1; next }
	fence && /^package main$/ { file = sprintf("%s/%d.go", dir, ++n); place = FILENAME ":" FNR }
	fence { fence = 0 }
	/^```$/ { if (file) close(file); file = "" }
	file { print > file }
' "${files[@]}"
programs=0
for program in "$work"/go/*.go; do
	[[ -e $program ]] || continue
	programs=$((programs + 1))
	# The overlay makes it a package of this module, so that it needs no go.mod of its own.
	printf '{"Replace": {"%s/examples/indocs%d/main.go": "%s"}}\n' "$PWD" $programs "$program" >"$work/overlay.json"
	go build -o /dev/null -overlay "$work/overlay.json" "./examples/indocs$programs"
done
echo "docs: Go programs compiled: $programs"
((programs > 0))
