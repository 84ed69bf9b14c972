#!/bin/bash
# Makes a bare Debian machine ready: the few system packages that are missing, then .venv with
# everything.  Safe to repeat; a second run with nothing changed takes a second or two.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}

# What a command said last, on one line; pip names all that it installs, and is silent then.
last_line() { # LOG
  tail -n 1 "$1" | awk -F ', ' '
    /^Installing collected packages:/ { print "installing " NF " packages"; next }
    length($0) > 90 { print substr($0, 1, 89) "…"; next }
    { print }'
}

# Runs a command that is silent for long: what is being done, how long that usually takes, and every
# few seconds how far it is.
slow() { # WHAT USUALLY COMMAND...
  local what=$1 usually=$2 log pid said=$SECONDS began=$SECONDS
  shift 2
  echo "$what (usually $usually when cold)"
  log=$(mktemp)
  "$@" >"$log" 2>&1 &
  pid=$!
  trap 'kill "$pid" 2>/dev/null; rm -f "$log"' EXIT
  trap 'exit 130' INT TERM
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    [ $((SECONDS - said)) -ge 5 ] || continue
    said=$SECONDS
    echo "  $((SECONDS - began)) s: $(last_line "$log")"
  done
  wait "$pid" || { tail -n 40 "$log" >&2; exit 1; }
  rm -f "$log"
  trap - EXIT INT TERM
}

need=()
have() { command -v "$1" >/dev/null 2>&1; }
makes_venvs() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
# Debian's own is compiled with profiles, what version managers compile is not: that takes a fifth
# longer for whatever Python does, tests and simulated clusters too.
PYTHON=${PYTHON:-/usr/bin/python3}
makes_venvs "$PYTHON" || PYTHON=python3
have "$PYTHON" || need+=(python3)
makes_venvs "$PYTHON" || need+=(python3-venv)
have kcat || need+=(kcat)
have java || need+=(openjdk-17-jre-headless)
have mvn || need+=(maven)
if [ ${#need[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || { echo "these packages are missing and this is not root: ${need[*]}" >&2; exit 1; }
  export DEBIAN_FRONTEND=noninteractive
  slow "Debian's lists of packages" "10 s" apt-get update
  slow "Debian packages: ${need[*]}" "a minute" apt-get install -y --no-install-recommends "${need[@]}"
fi

# A process imports some 500 modules of ours. Compiled here, since Python keeps no bytecode itself where
# PYTHONDONTWRITEBYTECODE is set, as in many containers: each start would compile them all again.
compile_sources() {
  "$VENV/bin/python" -m compileall -q core operator broker_image spark sim
}

executable=$(readlink -f "$(command -v "$PYTHON")")
stamp=$( (echo "$executable" && cat pyproject.toml constraints.txt) | sha256sum | cut -c1-16)
if [ "$(cat "$VENV/.stamp" 2>/dev/null || true)" = "$stamp" ]; then
  compile_sources
  exit 0
fi
# One of another Python is of no use to this one.
[ "$(sed -n 's/^executable = //p' "$VENV/pyvenv.cfg" 2>/dev/null)" = "$executable" ] ||
  "$PYTHON" -m venv --clear "$VENV"
slow "Python packages, into $VENV" "two minutes" "$VENV/bin/python" -m pip install \
  --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[spark,dev]'
echo "$stamp" >"$VENV/.stamp"
compile_sources
