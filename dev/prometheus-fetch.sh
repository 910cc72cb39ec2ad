#!/usr/bin/env bash
# Puts promtool and amtool into .local/cache/prometheus/bin and nowhere else.
#
# They come out of Debian's packages prometheus and prometheus-alertmanager, which are
# downloaded and unpacked, not installed: no service starts, no user is made. Alert rules
# and their tests (deploy/monitoring) are checked with them.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${SEAHUB_TEST_CACHE_DIR:-$root/.local/cache}
dest=$cache/prometheus

say() { printf 'prometheus-fetch: %s\n' "$*"; }
die() { printf 'prometheus-fetch: %s\n' "$*" >&2; exit 1; }

ready() { [ -x "$dest/bin/promtool" ] && [ -x "$dest/bin/amtool" ]; }
ready && exit 0

mkdir -p "$cache"
exec 9>"$cache/prometheus.lock"
flock 9
ready && exit 0 # another run was faster

mkdir -p "$dest/bin"
if command -v promtool >/dev/null && command -v amtool >/dev/null; then
  ln -sf "$(command -v promtool)" "$(command -v amtool)" "$dest/bin/"
  exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
  die "this machine has no apt: put promtool and amtool (Prometheus, Alertmanager) into PATH"

work=$(mktemp -d "$cache/prometheus.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
download() { apt-get -qq -o Acquire::Retries=3 -o APT::Sandbox::User= download prometheus prometheus-alertmanager >"$work/log" 2>&1; }
say "downloading promtool and amtool"
# The package index may be absent or too old: only then is it fetched anew.
download || { apt-get -qq -o Acquire::Retries=3 update >/dev/null 2>&1 || true; download; } ||
  die "Debian's packages prometheus and prometheus-alertmanager cannot be downloaded: $(tail -n 3 "$work/log")"
for deb in *.deb; do dpkg-deb -x "$deb" tree; done
for tool in promtool amtool; do
  "tree/usr/bin/$tool" --version >/dev/null 2>&1 || die "the fetched $tool does not run"
  mv "tree/usr/bin/$tool" "$dest/bin/$tool"
done
say "ready: $("$dest/bin/promtool" --version 2>&1 | head -n 1)"
