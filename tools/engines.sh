#!/usr/bin/env bash
# Runs the suite on each engine that speaks Redis's protocol and is installed here by Debian's packages:
# Redis and Valkey. The tests start what is called redis-server; for another engine a folder with that
# name for its programs stands first on the PATH.
#
# usage: tools/engines.sh [packages and flags of go test; default ./...]
#
# ENGINES=valkey runs it on Valkey alone, where it has run on Redis before. GO_TEST is what runs it instead of "go test".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/valkey.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if (($# == 0)); then set -- ./...; fi
export SIGNALBOX_TEST_REDIS=required
read -ra go_test <<<"${GO_TEST:-go test}"

version() { "$1" --version | sed -nE 's/.*v=([0-9.]+).*/\1/p'; }

done=
if [[ ${ENGINES:-} != valkey ]]; then
	redis=$(version redis-server)
	echo "engines: go test on Redis $redis"
	"${go_test[@]}" "$@"
	done="redis=$redis "
fi

mkdir "$work/bin"
for name in server sentinel cli; do
	ln -s "$(command -v "valkey-$name")" "$work/bin/redis-$name"
done
export PATH=$work/bin:$PATH
valkey=$(version redis-server)
if ! redis-server --version | grep -qi valkey; then
	echo 'engines: redis-server is not Valkey, though its folder is first on the PATH' >&2
	exit 1
fi
echo "engines: go test on Valkey $valkey"
"${go_test[@]}" "$@"
echo "engines: ${done}valkey=$valkey ok"
