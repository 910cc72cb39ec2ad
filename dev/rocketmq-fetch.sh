#!/usr/bin/env bash
# Puts RocketMQ's name server, broker and tools into .local/cache/rocketmq and
# nowhere else.
#
#   dev/rocketmq-fetch.sh                what the tests need: 4.9.7
#   dev/rocketmq-fetch.sh 4.9.7 5.5.0    these versions
#
# Maven takes the jars from Maven Central by a pinned pom. Poms deep below it may
# name version ranges, and an artifact may be replaced, so the whole set is held
# against the checksums in dev/rocketmq: a jar that is changed, missing or new
# fails the fetch.
#
# Result: .local/cache/rocketmq/VERSION/lib/*.jar. Remove the folder to fetch it
# again. To move to another version write its pom, run this with
# SEAHUB_ROCKETMQ_RECORD=1, which writes the checksums, and review them.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${SEAHUB_TEST_CACHE_DIR:-$here/../.local/cache}/rocketmq

say() { printf 'rocketmq-fetch: %s\n' "$*"; }
die() { printf 'rocketmq-fetch: %s\n' "$*" >&2; exit 1; }

# check FOLDER VERSION: the folder holds the recorded jars and no others.
check() {
  local sums=$here/rocketmq/jars-$2.sha256 changed
  changed=$(diff <(LC_ALL=C sort -k2 "$sums") <(cd "$1" && LC_ALL=C sha256sum -- *.jar)) && return
  printf '%s\n' "$changed" >&2
  die "the jars of $2 are not those of $sums (< recorded, > fetched)"
}

fetch() {
  local version=$1 pom=$here/rocketmq/pom-$1.xml dest=$cache/$1 work
  [ -r "$pom" ] || die "there is no $pom: known are $(cd "$here/rocketmq" && echo pom-*.xml)"
  [ -d "$dest/lib" ] && return

  mkdir -p "$cache"
  exec 9>"$cache/$version.lock"
  flock 9
  [ -d "$dest/lib" ] && return # another run was faster

  command -v mvn >/dev/null || die "mvn is missing: run \`make deps\`, or install Maven and a JRE 17"
  say "fetching $version"
  work=$(mktemp -d "$cache/$version.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  mvn --batch-mode --quiet --file "$pom" dependency:copy-dependencies \
    -DoutputDirectory="$work/lib" >"$work/log" 2>&1 || { cat "$work/log" >&2; die "mvn could not fetch $version"; }
  if [ -n "${SEAHUB_ROCKETMQ_RECORD:-}" ]; then
    (cd "$work/lib" && LC_ALL=C sha256sum -- *.jar) >"$here/rocketmq/jars-$version.sha256"
  fi
  check "$work/lib" "$version"
  rm -f "$work/log"
  chmod 755 "$work"
  mv "$work" "$dest" # whole or not at all
  say "ready: $version, $(find "$dest/lib" -name '*.jar' | wc -l) jars"
}

[ $# -gt 0 ] || set -- 4.9.7
for version in "$@"; do fetch "$version"; done
