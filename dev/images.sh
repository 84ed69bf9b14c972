#!/bin/bash
# Builds the images plimsoll/{operator,broker,spark} with buildah and loads them into the local node.
#
#   dev/images.sh [NAME...]     all three by default; what has not changed since is skipped
#
# Each gets two tags: `dev`, and a hash of everything that went into it, so that a changed source
# changes the pods that run it. dev/values-local.yaml (written here, not kept in git) holds chart values
# that name the hash tags. A Dockerfile takes its base as BASE and defaults to a public one.
set -euo pipefail
# shellcheck source=dev/node.sh
source "$(dirname "${BASH_SOURCE[0]}")/node.sh"
TOP=$(dirname "$DEV")
SOURCES=(pyproject.toml constraints.txt README.md LICENSE .dockerignore core operator broker_image spark crds examples
  dev/requirements.py)
TAGS=$ROOT/images # one file per image: the tag that was loaded last
KEPT=3            # builds of an image that stay in any case

dockerfile() { case $1 in broker) echo broker_image/Dockerfile ;; *) echo "$1/Dockerfile" ;; esac; }
base() { case $1 in spark) echo "$JAVA_BASE" ;; *) echo "$PYTHON_BASE" ;; esac; }

sources_hash() { # IMAGE
  (
    cd "$TOP"
    cat "$ROOT/base/$(base "$1" | tr '/:' '__')/stamp"
    find "${SOURCES[@]}" -type f ! -path '*/__pycache__/*' ! -path '*.egg-info/*' ! -name '*.pyc' -print0 |
      sort -z | xargs -0 sha256sum
  ) | sha256sum | cut -c1-12
}

write_secrets() { # how this machine reaches its package index, for the build only
  mkdir -p -m 700 "$ROOT/secrets"
  cp /etc/ssl/certs/ca-certificates.crt "$ROOT/secrets/ca"
  python3 - "$ROOT/secrets/pip" <<'PY'
import re, subprocess, sys
known = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
wanted = {"index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries"}
lines = ["[global]", "cert = /run/secrets/ca", "disable-pip-version-check = true", "root-user-action = ignore"]
found = dict(re.findall(r"^\S+\.([\w-]+)='(.*)'$", known.stdout, re.M))  # the environment comes last
found = {key.lower().replace("_", "-"): value for key, value in found.items()}
lines += [f"{key} = {found[key]}" for key in sorted(wanted & found.keys())]
open(sys.argv[1], "w").write("\n".join(lines) + "\n")
PY
}

build_image() { # IMAGE TAG
  buildah bud -q --layers "${POLICY[@]}" --build-arg "BASE=$(base "$1")" \
    --secret "id=pip,src=$ROOT/secrets/pip" --secret "id=ca,src=$ROOT/secrets/ca" \
    -t "docker.io/plimsoll/$1:$2" -f "$TOP/$(dockerfile "$1")" "$TOP"
}

load_image() { # IMAGE TAG
  load_built "docker.io/plimsoll/$1:$2"
  in_node images tag --force "docker.io/plimsoll/$1:$2" "docker.io/plimsoll/$1:dev" >/dev/null
}

forget_old() { # IMAGE: all but the newest builds and those that somebody's pods still name
  local history=$TAGS/$1.history tag named
  # Nothing is forgotten while the API server cannot say what is still named.
  named=$(kubectl get pods,statefulsets,deployments,jobs -A -o yaml 2>/dev/null) || return 0
  head -n -$KEPT "$history" | while read -r tag; do
    if grep -q "plimsoll/$1:$tag" <<<"$named"; then continue; fi
    in_node images rm "docker.io/plimsoll/$1:$tag" >/dev/null 2>&1 || true
    buildah rmi "docker.io/plimsoll/$1:$tag" >/dev/null 2>&1 || true
    sed -i "/^$tag$/d" "$history"
  done
}

one_image() { # NAME
  local tag began=$SECONDS log=$LOG/image-$1.log
  tag=$(sources_hash "$1")
  if ! has_image "docker.io/plimsoll/$1:$tag"; then
    [ "$1" != spark ] || "$TOP/spark/jars.sh" >"$log" 2>&1 || { cat "$log" >&2; die "fetching Spark's jars failed"; }
    build_image "$1" "$tag" >"$log" 2>&1 || { tail -n 25 "$log" >&2; die "building plimsoll/$1 failed; all of it is in $log"; }
    load_image "$1" "$tag" >>"$log" 2>&1 || { tail -n 25 "$log" >&2; die "loading plimsoll/$1 failed"; }
    grep -vx "$tag" "$TAGS/$1.history" >"$TAGS/$1.new" 2>/dev/null || true
    echo "$tag" >>"$TAGS/$1.new" && mv "$TAGS/$1.new" "$TAGS/$1.history"
    forget_old "$1"
    say "plimsoll/$1:$tag built and loaded in $((SECONDS - began)) s"
  fi
  echo "$tag" >"$TAGS/$1"
}

write_values() {
  local version
  version=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\).*/\1/p' "$TOP/helm/plimsoll/Chart.yaml")
  cat >"$DEV/values-local.yaml" <<E
# Written by dev/images.sh: the images that the local node holds.
image: {registry: "", repository: plimsoll/operator, tag: "$(cat "$TAGS/operator")"}
images:
  broker: {"$version": "plimsoll/broker:$(cat "$TAGS/broker")"}
E
  [ ! -f "$TAGS/spark" ] ||
    echo "  spark: \"plimsoll/spark:$(cat "$TAGS/spark")\"" >>"$DEV/values-local.yaml"
}

main_images() {
  local name
  [ $# -gt 0 ] || set -- operator broker spark
  for name in "$@"; do [ -f "$TOP/$(dockerfile "$name")" ] || die "no $(dockerfile "$name"): images are operator, broker, spark"; done
  alive containerd || die "the node is not running: dev/node.sh up"
  mkdir -p "$TAGS" "$ROOT/tmp"
  export TMPDIR=$ROOT/tmp # buildah keeps its caches where this points
  exec 9>"$ROOT/images.lock"
  flock -w 1800 9 || die "another build has held $ROOT/images.lock for half an hour"
  write_storage_conf
  write_secrets
  for name in "$@"; do one_image "$name"; done
  [ ! -f "$TAGS/operator" ] || [ ! -f "$TAGS/broker" ] || write_values
}

main_images "$@"
