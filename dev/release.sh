#!/usr/bin/env bash
# An earlier release, from its commit: what upgrades are tried from, and gone back to.
#   dev/release.sh tree 0.1     extract its sources; prints the directory
#   dev/release.sh path 0.1     prints what PYTHONPATH must be to run it with this .venv
#   dev/release.sh wheel 0.1    make its wheel; prints the file
#   dev/release.sh images 0.1   build its images and load them into the local node; prints their names
# dev/releases.txt says which commit it is.  What is made stays under build/releases/, and is made
# once.
set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() { echo "release: $*" >&2; exit 1; }

[ $# -eq 2 ] || die "usage: dev/release.sh tree|path|wheel|images RELEASE"
what=$1 release=$2
commit=$(awk -v wanted="$release" '$1 == wanted {print $2}' "$TOP/dev/releases.txt")
[ -n "$commit" ] || die "dev/releases.txt does not know release $release"
git -C "$TOP" cat-file -e "$commit^{commit}" 2>/dev/null \
  || die "this clone lacks commit $commit (release $release); fetch the whole history"
place=$TOP/build/releases/$release
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

case $what in
  tree) echo "$tree" ;;
  path) echo "$tree/core:$tree/operator:$tree/broker_image:$tree/spark" ;;
  wheel)
    if ! ls "$place"/*.whl >/dev/null 2>&1; then
      new=$(mktemp -d "$place/wheel.XXXXXX")
      "$TOP/.venv/bin/python" -m pip wheel -q --disable-pip-version-check --no-deps \
        -w "$new" "$tree" >&2
      mv "$new"/*.whl "$place"/
      rmdir "$new"
    fi
    ls "$place"/*.whl
    ;;
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
  *) die "usage: dev/release.sh tree|path|wheel|images RELEASE" ;;
esac
