#!/bin/bash
# A cluster to work on, and how to reach it.
#
#   eval "$(dev/cluster.sh ensure)"
#
# brings up the local node unless it runs already, and prints the shell lines that point kubectl at it.
# With USE_CURRENT_CONTEXT=1 the current kubectl context is used and nothing is started: the lines are
# empty, and a context that does not answer is an error.
set -euo pipefail
DEV=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

[ "${1:-}" = ensure ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
if [ "${USE_CURRENT_CONTEXT:-}" = 1 ]; then
  context=$(kubectl config current-context) || exit 1
  kubectl get --raw /readyz --request-timeout=10s >/dev/null ||
    { echo "cluster: the context $context does not answer" >&2; exit 1; }
  echo "cluster: using the context $context" >&2
  exit 0
fi
"$DEV/node.sh" up
