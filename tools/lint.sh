#!/usr/bin/env bash
# Checks the format of all Go files and the workflows, then vets and lints every module of the tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
modfile=$PWD/tools/go.mod
failed=0

unformatted=$(go tool -modfile="$modfile" gofumpt -l .)
if [[ -n $unformatted ]]; then
	printf 'not formatted, run make fmt:\n%s\n' "$unformatted" >&2
	failed=1
fi

# Without shellcheck and pyflakes, which are there on some machines only.
go tool -modfile="$modfile" actionlint -shellcheck= -pyflakes= .github/workflows/*.yml || failed=1

while read -r mod; do
	dir=$(dirname "$mod")
	if [[ $dir == tools/jaeger ]]; then continue; fi # has no Go files
	echo "lint: $dir"
	packages=(./...)
	if [[ $dir == . ]]; then packages+=(./testdata/mutants/compile); fi # a folder that ./... leaves out
	(cd "$dir" && go vet "${packages[@]}" && go tool -modfile="$modfile" staticcheck "${packages[@]}") || failed=1
done < <(git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod' | sort)
exit $failed
