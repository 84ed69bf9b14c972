#!/bin/bash
# Fetches Debian's Prometheus and Alertmanager through apt and unpacks them aside, because a package
# that is installed starts a service.  Usage: prometheus.sh [DIRECTORY]   (default: .cache/prometheus
# in the checkout).  Prints the folder that holds prometheus, promtool and prometheus-alertmanager;
# safe to repeat.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${1:-$here/../.cache/prometheus}
mkdir -p "$target"
target=$(cd "$target" && pwd)
programs=(prometheus prometheus-alertmanager)

# Debian's Alertmanager reads templates from this folder, which no option names.
templates=usr/share/prometheus/alertmanager

complete() {
  for one in default email; do [ -e "/$templates/$one.tmpl" ] || return 1; done
  for one in "${programs[@]}" promtool; do [ -x "$target/usr/bin/$one" ] || return 1; done
}

fetch() { # FOLDER: apt downloads as a user of its own
  chmod 755 "$1"
  cd "$1"
  apt-get download -qq "${programs[@]}" || { apt-get update -qq && apt-get download -qq "${programs[@]}"; }
  for deb in ./*.deb; do dpkg-deb -x "$deb" unpacked || return 1; done
}

exec 9>"$target/lock"
flock -w 600 9 || { echo "prometheus.sh: another one has held $target/lock for ten minutes" >&2; exit 1; }
if ! complete; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (fetch "$work") >"$work.log" 2>&1 || { cat "$work.log" >&2; exit 1; }
  rm -rf "$target/usr" "$work.log"
  mv "$work/unpacked/usr" "$target/usr"
  install -D -m 644 -t "/$templates" "$target/$templates"/*.tmpl
  complete || { echo "prometheus.sh: the packages hold no ${programs[*]}" >&2; exit 1; }
fi
echo "$target/usr/bin"
