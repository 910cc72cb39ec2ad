#!/usr/bin/env bash
# Installs what the tests and the demo need and this machine lacks (make deps).
#
#   dev/install.sh              MariaDB, Redis, a C compiler (go test -race needs one)
#   dev/install.sh --mysql      the same and a private MySQL, see mysql-fetch.sh
#   dev/install.sh --rocketmq   the same and Java, Maven and RocketMQ's jars, see
#                               rocketmq-fetch.sh; --rocketmq5 adds version 5
#   dev/install.sh --promtool   the same and the checkers of deploy/monitoring, see
#                               prometheus-fetch.sh
#
# The -core packages and redis-tools hold the servers' programs only: no service
# is started, no user or folder is made, nothing listens afterwards. Says nothing
# and takes no time when all is there. Where it may not install (not root, no
# apt) it says what to run by hand and exits 1.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin

want_mysql=false
want_promtool=false
rocketmq=() # versions
for argument in "$@"; do
  case $argument in
    --mysql) want_mysql=true ;;
    --promtool) want_promtool=true ;;
    --rocketmq) rocketmq+=(4.9.7) ;;
    --rocketmq5) rocketmq+=(5.5.0) ;;
    *) printf 'usage: %s [--mysql] [--rocketmq] [--rocketmq5] [--promtool]\n' "$0" >&2; exit 2 ;;
  esac
done

say() { printf 'deps: %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

missing=()  # what a person would call it
packages=() # what apt calls it
need() {
  missing+=("$1")
  packages+=("${@:2}")
}

have mariadbd && have mariadb-install-db || need MariaDB mariadb-server-core mariadb-client-core
# Debian's redis-check-rdb is the same program as redis-server.
have redis-server || have redis-check-rdb || need Redis redis-tools
have gcc || have cc || need "a C compiler" gcc libc6-dev
if $want_mysql && ! [ -r /usr/share/keyrings/debian-archive-keyring.gpg ] && have apt-get; then
  need "Debian's archive keys" debian-archive-keyring
fi
if [ ${#rocketmq[@]} -gt 0 ]; then
  have java || need "a Java runtime" default-jre-headless
  have mvn || need Maven maven
fi

by_hand() {
  {
    say "$1"
    for name in "${missing[@]}"; do say "  missing: $name"; done
    say "run by hand, as root, on Debian or a child of it:"
    say "  apt-get update && apt-get install --no-install-recommends ${packages[*]}"
    say "elsewhere install MariaDB 10.11 or newer and Redis 7 or newer, so that mariadbd,"
    say "mariadb-install-db and redis-server are in PATH, and Java 17 or newer with Maven;"
    say "or start the servers yourself and set SEAHUB_TEST_MARIADB_DSN,"
    say "SEAHUB_TEST_MYSQL_DSN, SEAHUB_TEST_REDIS_ADDR and SEAHUB_TEST_ROCKETMQ_ADDR."
  } >&2
  exit 1
}

install() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 \
    install -y --no-install-recommends "${packages[@]}" >"$log" 2>&1
}

if [ ${#packages[@]} -gt 0 ]; then
  have apt-get || by_hand "this machine has no apt-get"
  [ "$(id -u)" = 0 ] || by_hand "installing packages needs root"
  say "installing ${packages[*]} (for ${missing[*]})"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  # The package index may be absent or too old: only then is it fetched anew.
  if ! install; then
    say "refreshing the package index"
    apt-get -qq -o Acquire::Retries=3 update >>"$log" 2>&1 || true # install says what is wrong
    install || { cat "$log" >&2; by_hand "apt-get could not install them"; }
  fi
fi

if $want_mysql && [ -z "${SEAHUB_TEST_MYSQL_DSN:-}" ]; then
  "$here/mysql-fetch.sh"
fi
if [ ${#rocketmq[@]} -gt 0 ]; then
  "$here/rocketmq-fetch.sh" "${rocketmq[@]}"
fi
if $want_promtool; then
  "$here/prometheus-fetch.sh"
fi
