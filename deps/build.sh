#!/bin/sh
# build.sh NAME PACKAGE OUTPUT
#
# Builds a server that tests and benchmarks run against, from the module deps/NAME, and
# says every few seconds how far it is. What Go has already built is not built again.
set -eu

name=$1 package=$2 output=$3
cd "$(dirname "$0")/$name"

log=$(mktemp "${TMPDIR:-/tmp}/isthmus-build.XXXXXX")
pid=
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; fi; rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start=$(date +%s)
echo "$name: building $(go list -m -f '{{.Version}}' "$package")"
go build -v -ldflags "-s -w" -o "$output" "$package" 2>"$log" &
pid=$!
while kill -0 "$pid" 2>/dev/null; do
	sleep 1
	seconds=$(($(date +%s) - start))
	if [ $((seconds % 10)) -eq 9 ]; then
		echo "$name: $seconds s, $(grep -vc '^go: ' "$log" || true) packages compiled"
	fi
done
if ! wait "$pid"; then
	pid=
	cat "$log" >&2
	exit 1
fi
pid=
echo "$name: ready after $(($(date +%s) - start)) s in $output"
