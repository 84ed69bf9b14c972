#!/bin/bash
# Builds an S3 server (versitygw, of the Go module that s3server/go.mod pins) and prints its path.
# Usage: s3server.sh   Safe to repeat; the first call compiles for some minutes.
set -euo pipefail
DEV=$(cd "$(dirname "$0")" && pwd)
ROOT=$DEV/../.cache LOG=$DEV/../.cache/s3server-logs
mkdir -p "$ROOT/s3server" "$LOG"
ROOT=$(cd "$ROOT" && pwd)
say() { echo "s3server: $*" >&2; }
die() { say "$*"; exit 1; }
# s3server/go.mod asks for this one.
GO_MIN_MINOR=25
# shellcheck source=dev/go.sh
source "$DEV/go.sh"
built=$ROOT/s3server/versitygw

exec 9>"$ROOT/s3server/lock"
flock -w 900 9 || die "another one has held $ROOT/s3server/lock for a quarter of an hour"
stamp=$(cat "$DEV"/s3server/go.* | sha256sum)
if [ ! -x "$built" ] || [ "$(cat "$built.stamp" 2>/dev/null)" != "$stamp" ]; then
  find_go
  say "compiling versitygw"
  (cd "$DEV/s3server" && CGO_ENABLED=0 nice -n 5 "$GO" build -mod=readonly -buildvcs=false -trimpath \
    -ldflags "-s -w" -gcflags=all=-dwarf=false -o "$built" github.com/versity/versitygw/cmd/versitygw) \
    >"$LOG/build.log" 2>&1 || { tail -n 20 "$LOG/build.log" >&2; die "building versitygw failed"; }
  echo "$stamp" >"$built.stamp"
fi
echo "$built"
