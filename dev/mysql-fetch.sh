#!/usr/bin/env bash
# Puts a real MySQL server into .local/cache/mysql and nowhere else.
#
# Production runs MySQL; Debian stable ships only MariaDB. Debian unstable has
# mysql-server-core, so a private apt (own sources, lists and cache; the
# system's are only read) downloads it with the libraries that it needs, and
# dpkg -x unpacks them side by side. Nothing is installed, no service starts,
# and the server runs by the loader and libraries of its own tree, so it does
# not matter how old the C library of this machine is.
#
# Result: .local/cache/mysql/bin/mysqld, a wrapper that tests and dev/stack run.
# Remove the folder to fetch a newer version.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${SEAHUB_TEST_CACHE_DIR:-$root/.local/cache}
dest=$cache/mysql

elsewhere="Start any MySQL 8 or 9 yourself and set
  SEAHUB_TEST_MYSQL_DSN='user:password@tcp(127.0.0.1:3306)/'."

say() { printf 'mysql-fetch: %s\n' "$*"; }
die() { printf 'mysql-fetch: %s\n' "$*" >&2; exit 1; }

[ -x "$dest/bin/mysqld" ] && exit 0

mkdir -p "$cache"
exec 9>"$cache/mysql.lock"
flock 9
[ -x "$dest/bin/mysqld" ] && exit 0 # another run was faster

# shellcheck disable=SC1091
[ "$(. /etc/os-release 2>/dev/null && echo "${ID:-}")" = debian ] || die "this machine is no Debian. $elsewhere"

work=$(mktemp -d "$cache/mysql.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/apt/{lists/partial,cache/archives/partial} "$work"/{debs,tree/root,tree/bin}

# The mirror is the one that this machine already uses for its own Debian suite.
# --no-release-info: the machine may never have fetched an index.
mirror=$(apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  awk '$1 ~ /debian\/?$/ && $2 !~ /-/ && $3 == "main" { found = $1 } END { print found }')
[ -n "$mirror" ] || die "this machine's apt sources name no Debian mirror. $elsewhere"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "$keyring is missing: apt-get install debian-archive-keyring"

echo "deb [signed-by=$keyring] $mirror unstable main" >"$work/apt/sources.list"
apt_options=(
  -o "Dir::Etc::sourcelist=$work/apt/sources.list"
  -o Dir::Etc::sourceparts=-
  -o "Dir::State::lists=$work/apt/lists"
  -o "Dir::Cache=$work/apt/cache"
  -o APT::Sandbox::User=
  -o Acquire::Languages=none
  -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false
  -o Acquire::Retries=3
  # A mirror that has not followed for some weeks has an older server, which does as well;
  # signatures and sums are checked all the same.
  -o Acquire::Check-Valid-Until=false
)

say "reading the package index of Debian unstable"
apt-get "${apt_options[@]}" -qq update || die "the mirror does not serve it. $elsewhere"

# Perl serves the helper scripts only; debconf and friends serve the system.
packages=$(apt-cache "${apt_options[@]}" depends --recurse --no-recommends --no-suggests \
  --no-conflicts --no-breaks --no-replaces --no-enhances mysql-server-core |
  grep -E '^[a-z0-9]' | grep -vE '^(perl|libperl|debconf|cdebconf|mysql-common|dpkg|tar|adduser|passwd|lsb-base)' | sort -u)
say "downloading $(wc -w <<<"$packages") packages: $(tr '\n' ' ' <<<"$packages")"
# shellcheck disable=SC2086
(cd "$work/debs" && apt-get "${apt_options[@]}" -qq download $packages) || die "a package could not be downloaded. $elsewhere"

for deb in "$work"/debs/*.deb; do
  dpkg-deb -x "$deb" "$work/tree/root"
done

cat >"$work/tree/bin/mysqld" <<'WRAPPER'
#!/bin/sh
# Runs mysqld by the loader and the libraries of its own tree; exec keeps the pid.
root=$(cd "$(dirname "$0")/../root" && pwd) || exit 1
for loader in "$root"/usr/lib64/ld-linux*.so.* "$root"/lib64/ld-linux*.so.* \
  "$root"/usr/lib/ld-linux*.so.* "$root"/usr/lib/*/ld-linux*.so.*; do
  [ -x "$loader" ] && break
done
libraries=$root/usr/lib/mysql/private
for folder in "$root"/usr/lib/*-linux-gnu "$root"/lib/*-linux-gnu; do
  [ -d "$folder" ] && libraries=$libraries:$folder
done
exec "$loader" --library-path "$libraries" "$root/usr/sbin/mysqld" --no-defaults \
  --basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" \
  --character-sets-dir="$root/usr/share/mysql/charsets" \
  --plugin-dir="$root/usr/lib/mysql/plugin" "$@"
WRAPPER
chmod +x "$work/tree/bin/mysqld"

version=$("$work/tree/bin/mysqld" --version 2>&1) || die "the fetched server does not run: $version"
rm -rf "$dest"
mv "$work/tree" "$dest" # whole or not at all
say "ready: ${version##*/}"
