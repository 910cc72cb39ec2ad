#!/usr/bin/env bash
# Says which known faults of Go and of our modules our code reaches. Arguments: folders of
# modules; those of the services when there are none.
#
# The database is the Go project's own, as the module golang.org/x/vulndb: it comes the way
# that all modules come, and needs no further host. VULNDB names a version of it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
[ $# -gt 0 ] || set -- services/*/

version=${VULNDB:-latest}
db=$root/out/vulndb
export GOWORK=off

found=$(cd / && go mod download -json "golang.org/x/vulndb@$version")
field() { sed -n "s/^[[:space:]]*\"$1\": \"\(.*\)\",*$/\1/p" <<<"$found"; }
version=$(field Version) reports=$(field Dir)/data/osv
printf 'database: golang.org/x/vulndb %s\n' "$version"
if [ "$(cat "$db/version" 2>/dev/null)" != "$version" ]; then
  rm -rf "$db" && mkdir -p "$db"
  (cd / && go run "golang.org/x/vulndb/cmd/indexdb@$version" -vulns "$reports" -out "$db")
  printf '%s' "$version" >"$db/version"
fi

mkdir -p .local/bin
go -C tools build -o ../.local/bin/govulncheck golang.org/x/vuln/cmd/govulncheck
status=0
for module in "$@"; do
  printf '\n%s\n' "$module"
  (cd "$module" && "$root/.local/bin/govulncheck" -db "file://$db" ./...) || status=1
done
exit $status
