#!/usr/bin/env bash
# The release before this one, from its commit: what upgrades are tried from, and gone back to.
#   dev/release.sh name     print its name, such as 0.2
#   dev/release.sh tree     extract its sources; prints the directory
#   dev/release.sh path     print what PYTHONPATH must be to run it with this .venv
#   dev/release.sh images   build its images and load them into the local node; prints their names
# It is the newest tag v* before HEAD; in a clone without tags, the commit in dev/releases.txt. What
# is made stays under build/releases/, and is made once.
set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() { echo "release: $*" >&2; exit 1; }

commit=$(git -C "$TOP" describe --tags --abbrev=0 --match 'v[0-9]*' HEAD 2>/dev/null) ||
  commit=$(awk '!/^#/ {print $2}' "$TOP/dev/releases.txt")
commit=$(git -C "$TOP" rev-parse --verify --quiet "$commit^{commit}") \
  || die "this clone lacks commit $commit; fetch the whole history"
place=$TOP/build/releases/${commit:0:12}
tree=$place/tree

# Whole or not at all: two that make it at once must not see half of each other's.
if [ ! -d "$tree" ]; then
  mkdir -p "$place"
  new=$(mktemp -d "$place/new.XXXXXX")
  git -C "$TOP" archive "$commit" | tar -x -C "$new"
  chmod 755 "$new"
  mv -T "$new" "$tree" 2>/dev/null || rm -rf "$new"
  [ -d "$tree" ] || die "$tree could not be made"
fi
release=$(sed -n 's/^RELEASE = "\(.*\)"$/\1/p' "$tree/core/plimsoll_core/release.py")

case ${1:-} in
  name) echo "$release" ;;
  tree) echo "$tree" ;;
  path) echo "$tree/core:$tree/operator:$tree/broker_image:$tree/spark" ;;
  images)
    # shellcheck source=dev/node.sh
    source "$TOP/dev/node.sh"
    # Its own script writes down what it loaded last; that stays what the present sources gave.
    kept=$(mktemp -d)
    for name in operator broker; do cp "$ROOT/images/$name" "$kept/" 2>/dev/null || true; done
    "$tree/dev/images.sh" operator broker >&2
    for name in operator broker; do
      built=docker.io/plimsoll/$name:$(cat "$ROOT/images/$name")
      in_node images tag --force "$built" "docker.io/plimsoll/$name:$release" >/dev/null
      cp "$kept/$name" "$ROOT/images/$name" 2>/dev/null || true
      echo "plimsoll/$name:$release"
    done
    rm -rf "$kept"
    ;;
  *) die "usage: dev/release.sh name|tree|path|images" ;;
esac
