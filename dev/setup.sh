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
have python3 || need+=(python3)
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || need+=(python3-venv)
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

stamp=$(cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)
if [ "$(cat "$VENV/.stamp" 2>/dev/null || true)" = "$stamp" ]; then
  compile_sources
  exit 0
fi
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
slow "Python packages, into $VENV" "two minutes" "$VENV/bin/python" -m pip install \
  --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[spark,dev]'
echo "$stamp" >"$VENV/.stamp"
compile_sources
