#!/usr/bin/env bash
# Installs valkey-server on Debian, as root, without questions. Where the release has no such package it
# comes from the release's backports: that suite is added to apt's sources for as long as this takes, from
# the same servers as the release itself. The server is not started.
set -euo pipefail
if command -v valkey-server >/dev/null; then exit 0; fi
if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
	echo 'install valkey-server first: only root on Debian can have it done here' >&2
	exit 1
fi
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
suite=$codename-backports
parts=/etc/apt/sources.list.d
added=$parts/signalbox-backports
out=$(mktemp)
policy=
cleanup() {
	rm -f "$added.sources" "$added.list" "$out"
	if [[ -n $policy ]]; then rm -f "$policy"; fi
}
trap cleanup EXIT

# run COMMAND... shows what a command said only if it fails.
run() {
	if ! DEBIAN_FRONTEND=noninteractive "$@" >"$out" 2>&1 </dev/null; then
		tail -n 40 "$out" >&2
		return 1
	fi
}

# backports writes the entries of the release itself again, for its backports.
backports() {
	local file
	for file in "$parts"/*.sources; do
		if [[ ! -e $file ]]; then continue; fi
		# Entries are separated by empty lines. The one of the release names it among its suites.
		awk -v RS='' -v suite="$codename" -v backports="$suite" '
			$0 ~ ("(^|\n)Suites:([^\n]*[ \t])?" suite "([ \t\n]|$)") {
				sub(/Suites:[^\n]*/, "Suites: " backports)
				print $0 "\n"
				exit
			}' "$file" >"$added.sources"
		if [[ -s $added.sources ]]; then return 0; fi
	done
	rm -f "$added.sources"
	awk -v suite="$codename" -v backports="$suite" '
		/^deb / { for (i = 2; i <= NF; i++) if ($i == suite) { $i = backports; print; exit } }
	' /etc/apt/sources.list "$parts"/*.list 2>/dev/null >"$added.list" || true
	if [[ -s $added.list ]]; then return 0; fi
	echo "apt's sources name no server of $codename, so there is none to ask for $suite" >&2
	return 1
}

if [[ ! -e /usr/sbin/policy-rc.d ]]; then # the package would start a server
	policy=/usr/sbin/policy-rc.d
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
fi
run apt-get -q update
if apt-cache show valkey-server >/dev/null 2>&1; then
	run apt-get -q install -y --no-install-recommends valkey-server valkey-sentinel
else
	backports
	run apt-get -q update
	run apt-get -q install -y --no-install-recommends -t "$suite" valkey-server valkey-sentinel
	rm -f "$added.sources" "$added.list"
	run apt-get -q update
fi
valkey-server --version
