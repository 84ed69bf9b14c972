# Images without an image registry: the pause image out of six lines of C, base images out of Debian
# packages.  Sourced by node.sh.
# shellcheck shell=bash

PYTHON_BASE=localhost/python:3.11-bookworm JAVA_BASE=localhost/python-java:3.11-17-bookworm
PAUSE_IMAGE=localhost/pause:1

write_storage_conf() {
  printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "%s"\n' \
    "$ROOT/buildah/graph" "$ROOT/buildah/run" >"$CONTAINERS_STORAGE_CONF"
  # Debian ships the policy with buildah; on a machine that has only the command, accept what we build.
  [ -e /etc/containers/policy.json ] || POLICY=(--signature-policy "$ETC/policy.json")
  echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$ETC/policy.json"
}
POLICY=()

base_images() {
  pause_image
  base_image "$PYTHON_BASE" python3,python3-venv,ca-certificates
  image_upon "$JAVA_BASE" openjdk-17-jre-headless,procps
}

pause_image() {
  local work=$ROOT/pause
  if buildah inspect --type image "$PAUSE_IMAGE" >/dev/null 2>&1; then return 0; fi
  mkdir -p "$work"
  cat >"$work/pause.c" <<'C'
#include <signal.h>
#include <unistd.h>
static void leave(int signal) { _exit(0); }
int main(void) {
  signal(SIGTERM, leave); signal(SIGINT, leave);
  signal(SIGCHLD, SIG_IGN); /* the first process of a pod: nobody it inherits stays a zombie */
  for (;;) pause();
}
C
  gcc -static -O2 -o "$work/pause" "$work/pause.c"
  printf 'FROM scratch\nCOPY pause /pause\nUSER 65535\nENTRYPOINT ["/pause"]\n' >"$work/Dockerfile"
  buildah bud -q "${POLICY[@]}" -t "$PAUSE_IMAGE" "$work"
}

has_base() { # NAME STAMP
  [ "$(cat "$(base_folder "$1")/stamp" 2>/dev/null)" = "$2" ] && buildah inspect --type image "$1" >/dev/null 2>&1
}

base_folder() { echo "$ROOT/base/$(echo "$1" | tr '/:' '__')"; }

# Java's packages link their manual pages into a folder that they take for granted.
DEBIAN=(mmdebstrap -q --essential-hook='mkdir -p "$1/usr/share/man/man1"' --dpkgopt='path-exclude=/usr/share/doc/*'
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*')

base_image() { # NAME PACKAGES
  local work
  work=$(base_folder "$1")
  if [ -e "$work/base.tar" ] && has_base "$1" "$2"; then return 0; fi # the tar is what others build upon
  rm -rf "$work"
  mkdir -p "$work"
  "${DEBIAN[@]}" --variant=minbase --include="$2" bookworm "$work/base.tar"
  printf 'FROM scratch\nADD base.tar /\nENV LANG=C.UTF-8\nCMD ["python3"]\n' >"$work/Dockerfile"
  buildah bud -q "${POLICY[@]}" -t "$1" "$work"
  echo "$2" >"$work/stamp"
}

image_upon() { # NAME PACKAGES: a layer upon Python's base image, of what the packages add or change
  local work below
  work=$(base_folder "$1") below=$(base_folder "$PYTHON_BASE")
  if has_base "$1" "$2 $(cat "$below/stamp")"; then return 0; fi
  rm -rf "$work"
  mkdir -p "$work"
  "${DEBIAN[@]}" --variant=custom --include="$2" --setup-hook="tar-in '$below/base.tar' /" \
    --setup-hook="touch '$work/begun'" --customize-hook="cd \"\$1\" && find . -xdev -cnewer '$work/begun' \
      ! -path './var/lib/apt/*' ! -path './var/cache/*' ! -path './tmp/*' ! -path './dev/*' -print0 |
      tar --null --no-recursion -T - -cf '$work/layer.tar'" bookworm /dev/null
  printf 'FROM %s\nADD layer.tar /\n' "$PYTHON_BASE" >"$work/Dockerfile"
  buildah bud -q "${POLICY[@]}" -t "$1" "$work"
  rm -f "$work/layer.tar"
  echo "$2 $(cat "$below/stamp")" >"$work/stamp"
}

load_archive() { # TAR
  [ -f "${1:-}" ] || die "load: no such archive: ${1:-(none given)}"
  in_node images import "$1" >/dev/null
}

in_node() { ctr -a "$SOCKET" -n k8s.io "$@"; }

has_image() { in_node images ls -q | grep -qx "$1"; } # NAME

load_built() { # NAME: from buildah's storage into the node
  local archive
  mkdir -p "$ROOT/tmp"
  archive=$(mktemp -p "$ROOT/tmp" image.XXXXXX)
  rm "$archive" # the name is what is wanted: buildah refuses to write over a file
  buildah push -q "${POLICY[@]}" --disable-compression "$1" "docker-archive:$archive:$1" &&
    load_archive "$archive" || { rm -f "$archive"; return 1; }
  rm -f "$archive"
}
