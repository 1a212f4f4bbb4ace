#!/usr/bin/env bash
# Puts the table of a kept run of run.sh into a document, in the place of the one that is there: the
# block that begins with "run  ". It leaves out memory and time, which vary, and the runs of
# larger bounds.
#
#   quote.sh KEPT DOCUMENT
set -euo pipefail
kept=${1:?which kept run} document=${2:?which document}
grep -q '^run  ' "$document" || { echo "$document has no table to replace" >&2; exit 1; }
new=$(mktemp)
trap 'rm -f "$new"' EXIT
# The columns after depth are the last 14 characters of a row.
awk -v kept="$kept" '
	/^run  / {
		while ((getline line < kept) > 0)
			if (line ~ /^[a-z0-9\/-]+ +[a-z,]+ / && line !~ /^model|-long /) {
				line = substr(line, 1, length(line) - 14)
				sub(/ +$/, "", line)
				print line
			}
		skip = 1
	}
	/^```$/ { skip = 0 }
	!skip
' "$document" >"$new"
cat "$new" >"$document"
