#!/usr/bin/env bash
# Runs the program against a real Jaeger, which is built if it is missing, and asserts on what its
# API says. The last line, "jaeger: ok" with counts, is the test's own: it is there only if every
# assertion was made and held.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
JAEGER_BIN=$(../../../tools/jaeger/build.sh)
export JAEGER_BIN SIGNALBOX_TEST_JAEGER=required
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# go test would put a line of its own behind the last one.
go test -c -o "$work/tracing.test" .
"$work/tracing.test" -test.run='^TestJaeger$' -test.timeout=10m
