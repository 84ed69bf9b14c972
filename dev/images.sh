#!/bin/bash
# Builds the images plimsoll/{operator,broker,spark} with buildah and loads them into the local node.
#
#   dev/images.sh [--build-only] [NAME...]     all three by default; what has not changed is skipped
#
# With --build-only the node need not run: what is built then is loaded by the next call without it.
# Each gets two tags: `dev`, and a hash of everything that went into it, so that a changed source
# changes the pods that run it. dev/values-local.yaml (written here, not kept in git) holds chart values
# that name the hash tags. The Dockerfile takes its base as BASE and defaults to a public one.
set -euo pipefail
# shellcheck source=dev/node.sh
source "$(dirname "${BASH_SOURCE[0]}")/node.sh"
TOP=$(dirname "$DEV")
SOURCES=(Dockerfile pyproject.toml constraints.txt README.md LICENSE .dockerignore core operator broker_image spark
  crds examples dev/requirements.py)
TAGS=$ROOT/images # one file per image: the tag that was loaded last
KEPT=3            # builds of an image that stay in any case

base() { case $1 in spark) echo "$JAVA_BASE" ;; *) echo "$PYTHON_BASE" ;; esac; }

sources_hash() { # IMAGE
  (
    cd "$TOP"
    cat "$(base_folder "$(base "$1")")/stamp"
    find "${SOURCES[@]}" -type f ! -path '*/__pycache__/*' ! -path '*.egg-info/*' ! -name '*.pyc' -print0 |
      sort -z | xargs -0 sha256sum
  ) | sha256sum | cut -c1-12
}

write_secrets() { # how this machine reaches its package index, and what it has fetched, for the build only
  mkdir -p -m 700 "$ROOT/secrets"
  cp /etc/ssl/certs/ca-certificates.crt "$ROOT/secrets/ca"
  python3 - "$ROOT/secrets/pip" <<'PY'
import re, subprocess, sys
known = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
wanted = {"index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries"}
lines = ["[global]", "cert = /run/secrets/ca", "disable-pip-version-check = true", "root-user-action = ignore",
         "cache-dir = /pip-cache"]
found = dict(re.findall(r"^\S+\.([\w-]+)='(.*)'$", known.stdout, re.M))  # the environment comes last
found = {key.lower().replace("_", "-"): value for key, value in found.items()}
lines += [f"{key} = {found[key]}" for key in sorted(wanted & found.keys())]
open(sys.argv[1], "w").write("\n".join(lines) + "\n")
PY
}

build_image() { # IMAGE TAG
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/pip # of .venv's pip too: nothing is fetched or built twice
  mkdir -p "$cache"
  buildah bud --layers "${POLICY[@]}" --build-arg "BASE=$(base "$1")" --build-arg "WHEEL_BASE=$PYTHON_BASE" \
    --build-arg "IMAGE=$1" --target "$1" -v "$cache:/pip-cache" \
    --secret "id=pip,src=$ROOT/secrets/pip" --secret "id=ca,src=$ROOT/secrets/ca" \
    -t "docker.io/plimsoll/$1:$2" "$TOP"
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

built() { # IMAGE TAG: into buildah's storage, unless it is there
  local began=$SECONDS log=$LOG/image-$1.log
  if buildah inspect --type image "docker.io/plimsoll/$1:$2" >/dev/null 2>&1; then return; fi
  [ "$1" != spark ] || quietly spark-jars "$TOP/spark/jars.sh" || die "fetching Spark's jars failed"
  quietly "image-$1" build_image "$1" "$2" || die "building plimsoll/$1 failed; all of it is in $log"
  say "plimsoll/$1:$2 built in $((SECONDS - began)) s"
}

loaded() { # IMAGE TAG: into the node, unless it is there
  local log=$LOG/load-$1.log
  if ! has_image "docker.io/plimsoll/$1:$2"; then
    built "$1" "$2"
    load_image "$1" "$2" >"$log" 2>&1 || { tail -n 25 "$log" >&2; die "loading plimsoll/$1 failed"; }
    grep -vx "$2" "$TAGS/$1.history" >"$TAGS/$1.new" 2>/dev/null || true
    echo "$2" >>"$TAGS/$1.new" && mv "$TAGS/$1.new" "$TAGS/$1.history"
    forget_old "$1"
    say "plimsoll/$1:$2 loaded"
  fi
  echo "$2" >"$TAGS/$1"
}

write_values() {
  local version
  version=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\).*/\1/p' "$TOP/helm/plimsoll/Chart.yaml")
  cat >"$DEV/values-local.yaml" <<E
# Written by dev/images.sh: the images that the local node holds, and rights on what tests install.
externalAccess: {tlsRoutes: true}
verification: {executors: true, drills: true}
certManager: {enabled: true}
image: {registry: "", repository: plimsoll/operator, tag: "$(cat "$TAGS/operator")"}
images:
  broker: {"$version": "plimsoll/broker:$(cat "$TAGS/broker")"}
E
  [ ! -f "$TAGS/spark" ] ||
    echo "  spark: \"plimsoll/spark:$(cat "$TAGS/spark")\"" >>"$DEV/values-local.yaml"
}

main_images() {
  local name do=loaded
  if [ "${1:-}" = --build-only ]; then do=built; shift; fi
  [ $# -gt 0 ] || set -- operator broker spark
  for name in "$@"; do [[ " operator broker spark " == *" $name "* ]] || die "no image $name: there are operator, broker, spark"; done
  [ $do = built ] || alive containerd || die "the node is not running: dev/node.sh up"
  mkdir -p "$TAGS" "$ROOT/tmp" "$LOG"
  export TMPDIR=$ROOT/tmp # buildah keeps its caches where this points
  exec 9>"$ROOT/images.lock"
  flock -w 1800 9 || die "another build has held $ROOT/images.lock for half an hour"
  write_storage_conf
  write_secrets
  for name in "$@"; do "$do" "$name" "$(sources_hash "$name")"; done
  [ $do = built ] || [ ! -f "$TAGS/operator" ] || [ ! -f "$TAGS/broker" ] || write_values
}

main_images "$@"
