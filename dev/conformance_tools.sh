#!/bin/bash
# What `make conformance` needs beyond `make setup`: a C compiler and Go, for the suites of clients
# in Go.  Prints the path of Go's command.  Safe to repeat.
set -euo pipefail
DEV=$(cd "$(dirname "$0")" && pwd)
ROOT=$DEV/../.cache LOG=$DEV/../.cache/conformance-logs
mkdir -p "$ROOT" "$LOG"
ROOT=$(cd "$ROOT" && pwd)
say() { echo "conformance: $*" >&2; }
die() { say "$*"; exit 1; }
# sarama asks for this one.
GO_MIN_MINOR=26 GO_RELEASE=go1.26.0
# shellcheck source=dev/go.sh
source "$DEV/go.sh"

need=()
command -v gcc >/dev/null || need+=(gcc)
[ -e /usr/include/unistd.h ] || need+=(libc6-dev)
[ -e /etc/ssl/certs/ca-certificates.crt ] || need+=(ca-certificates)
if [ ${#need[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || die "these packages are missing and this is not root: ${need[*]}"
  say "Debian packages: ${need[*]}"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${need[@]}"; } >"$LOG/apt.log" 2>&1 ||
    { tail -n 20 "$LOG/apt.log" >&2; die "apt-get install failed"; }
fi
find_go
echo "$GO"
