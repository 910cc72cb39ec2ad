#!/usr/bin/env bash
# Holds the modules of the workspace together. Arguments: their folders.
#
# A workspace hides what a go.mod lacks and chooses one version for all, so what
# passes in it may fail in a Docker build, which has no go.work: each module
# must build alone and be tidy, and all must name the same Go and the same
# version of whatever they share.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
complain() { printf 'tidy-check: %s\n' "$*" >&2; status=1; }

go_line=$(awk '$1 == "go" { print $2 }' go.work)
for module in "$@"; do
  GOWORK=off go -C "$module" build -o /dev/null ./... || complain "$module does not build without go.work"
  GOWORK=off go -C "$module" mod tidy -diff || complain "$module: run GOWORK=off go -C $module mod tidy"
  line=$(awk '$1 == "go" { print $2 }' "$module/go.mod")
  [ "$line" = "$go_line" ] || complain "$module/go.mod says go $line, go.work says go $go_line"
  grep -qE "^[[:space:]]*(use )?\./$module/?$" go.work || complain "go.work does not use ./$module"
done

# path version module, one line for each requirement
disagreements=$(for module in "$@"; do
  awk -v module="$module" '
    $1 == "require" && $2 == "(" { block = 1; next }
    block && $1 == ")" { block = 0; next }
    block && NF >= 2 { print $1, $2, module }
    $1 == "require" && NF >= 3 && $2 != "(" { print $2, $3, module }' "$module/go.mod"
done | awk '
  ($1 in version) && version[$1] != $2 { print $1 ": " version[$1] " in " where[$1] ", " $2 " in " $3 }
  !($1 in version) { version[$1] = $2; where[$1] = $3 }')
[ -z "$disagreements" ] || complain "modules disagree on versions:
$disagreements"
exit $status
