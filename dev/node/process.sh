# Host processes of the node: started once, known by pid *and* start time, so that a pid that the
# kernel has given to a stranger since is never signalled.  Sourced by node.sh.
# shellcheck shell=bash

started_at() { # PID -> its start time in clock ticks; fails if there is no such process
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  stat=${stat##*) } # the name may hold spaces and brackets; after it come state (3rd field) ...
  # shellcheck disable=SC2086
  set -- $stat
  [ "$1" != Z ] && echo "${20}"
}

alive() { # NAME
  local pid born
  read -r pid born 2>/dev/null <"$RUN/$1.pid" || return 1
  [ "$(started_at "$pid")" = "$born" ]
}

start() { # NAME COMMAND...: detached from the terminal, log in LOG/NAME.log; nothing if it runs already
  local name=$1 pid
  shift
  if alive "$name"; then return 0; fi
  setsid "$@" >"$LOG/$name.log" 2>&1 </dev/null 9>&- &
  pid=$!
  echo "$pid $(started_at "$pid")" >"$RUN/$name.pid"
}

stop() { # NAME [SECONDS]: SIGTERM, and SIGKILL when it has not ended in time
  local pid
  if alive "$1"; then
    read -r pid _ <"$RUN/$1.pid"
    kill -TERM "$pid" 2>/dev/null || true
    kill -CONT "$pid" 2>/dev/null || true # a test may have left it stopped
    wait_for "${2:-10}" not_alive "$1" || { kill -KILL "$pid" && wait_for 5 not_alive "$1"; }
  fi
  rm -f "$RUN/$1.pid"
}

not_alive() { ! alive "$1"; }

wait_for() { # SECONDS COMMAND...: until it succeeds, asked every 100 ms
  local tries=$(($1 * 10))
  shift
  while ! "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.1
  done
}

must_come() { # SECONDS NAME COMMAND...: like wait_for, with a reason when it does not
  local seconds=$1 name=$2
  shift 2
  wait_for "$seconds" "$@" && return 0
  say "$name did not come up within $seconds s; the end of $LOG/$name.log:"
  tail -n 15 "$LOG/$name.log" >&2 || true
  exit 1
}
