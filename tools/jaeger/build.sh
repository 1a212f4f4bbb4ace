#!/usr/bin/env bash
# Prints the path of a Jaeger, which is built first if it isn't there: some seven minutes on two
# cores, from the Go module proxy, with nothing but Go. It is kept outside the tree, in
# $XDG_CACHE_HOME/signalbox (or ~/.cache/signalbox), and may be deleted at any time.
#
#   tools/jaeger/build.sh         build it if it is missing, and print its path
#   tools/jaeger/build.sh -path   only print where it is, or would be
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

package=github.com/jaegertracing/jaeger/cmd/jaeger
version=$(awk '$1 == "github.com/jaegertracing/jaeger" { print $2 }' go.mod)
binary=${XDG_CACHE_HOME:-$HOME/.cache}/signalbox/jaeger-$version
case ${1-} in
-path) ;;
'')
	if [[ ! -x $binary ]]; then
		mkdir -p "${binary%/*}"
		echo "building Jaeger $version, once: it takes some minutes" >&2
		# Under its final name only when it is whole, and whoever else builds it at the same time.
		part=$binary.$$
		trap 'rm -f "$part"' EXIT
		CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$part" "$package" >&2
		mv "$part" "$binary"
	fi
	;;
*)
	echo "usage: $0 [-path]" >&2
	exit 2
	;;
esac
echo "$binary"
