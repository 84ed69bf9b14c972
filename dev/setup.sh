#!/bin/bash
# Makes a bare Debian machine ready: the few system packages that are missing, then .venv with
# everything.  Safe to repeat; a second run with nothing changed takes a second or two.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}

need=()
have() { command -v "$1" >/dev/null 2>&1; }
have python3 || need+=(python3)
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || need+=(python3-venv)
have kcat || need+=(kcat)
have java || need+=(openjdk-17-jre-headless)
have mvn || need+=(maven)
if [ ${#need[@]} -gt 0 ]; then
  echo "installing Debian packages: ${need[*]}"
  [ "$(id -u)" = 0 ] || { echo "these packages are missing and this is not root: ${need[*]}" >&2; exit 1; }
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi

stamp=$(cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)
if [ "$(cat "$VENV/.stamp" 2>/dev/null || true)" = "$stamp" ]; then
  exit 0
fi
echo "making $VENV (about a minute when cold)"
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt \
  -e '.[operator,broker,spark,dev]'
echo "$stamp" >"$VENV/.stamp"
