#!/bin/sh
# build.sh NAME OUTPUT PACKAGE [go build flags]
#
# Builds one binary of this module and says every few seconds how far it is, since
# daprd takes minutes the first time. What Go has already built is not built again.
set -eu

name=$1 output=$2 package=$3
shift 3

version=$(go list -m -f '{{.Version}}' github.com/dapr/dapr | sed 's/^v//')
log=$(mktemp "${TMPDIR:-/tmp}/isthmus-build.XXXXXX")
start=$(date +%s)
elapsed() { echo $(($(date +%s) - start)); }

# go build gets no Ctrl-C when it runs in the background, so it is passed on.
pid=
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; fi; rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "$name: building (Dapr $version)"
go build -v "$@" \
	-ldflags "-s -w -X github.com/dapr/dapr/pkg/buildinfo.version=$version" \
	-o "$output" "$package" 2>"$log" &
pid=$!

said=0
while kill -0 "$pid" 2>/dev/null; do
	sleep 1
	now=$(elapsed)
	if [ $((now - said)) -ge 5 ] && kill -0 "$pid" 2>/dev/null; then
		said=$now
		echo "$name: $now s, $(grep -vc '^go: ' "$log" || true) packages compiled, at: $(tail -n 1 "$log")"
	fi
done

if ! wait "$pid"; then
	pid=
	grep '[:#]' "$log" >&2 || cat "$log" >&2
	echo "$name: the build failed after $(elapsed) s" >&2
	exit 1
fi
pid=
echo "$name: ready after $(elapsed) s in $output"
