#!/usr/bin/env bash
# Runs every test of the workspace and ends with go test's own summary lines.
# Arguments go to go test.
#
# pkg runs with the race detector: its goroutines are what it would find faults
# in. The other modules run without it: the end-to-end tests start binaries of
# the services that are built with -race themselves, and a test binary does not
# instrument its children. Of pkg, the RocketMQ driver runs without it as well: the
# client has data races of its own (on the flag that ends it), which would fail any
# test that stops one.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(go list work)
norace='/seahub-mq/pkg/eventbus/rocketmq$'
raced=$(grep '/seahub-mq/pkg\(/\|$\)' <<<"$packages" | grep -v "$norace")
plain=$(grep -v '/seahub-mq/pkg\(/\|$\)' <<<"$packages" || true)
# The longest first, so that it does not run alone in the end.
plain=$(grep '/test/e2e$' <<<"$plain" || true; grep "$norace" <<<"$packages"; grep -v '/test/e2e$' <<<"$plain" || true)

# Tests wait more than they reckon: for servers, leases and deadlines. On two cores two
# packages at a time leave nearly half of the machine idle.
at_once=-p=$(( $(nproc) * 3 / 2 ))

# A failure in the first does not hide one in the second.
status=0
go test "$at_once" -race "$@" $raced || status=1
if [ -n "$plain" ]; then
  go test "$at_once" "$@" $plain || status=1
fi
# The tools are no part of the workspace.
GOWORK=off go -C tools test "$@" ./... || status=1
exit $status
