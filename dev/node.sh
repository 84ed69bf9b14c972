#!/bin/bash
# A real one-node Kubernetes on a bare Debian machine, without any image registry.
#
#   dev/node.sh install   Debian packages, Go binaries (k8s, etcd, helm, CoreDNS), base images;
#                         minutes when cold, under a second when nothing changed
#   dev/node.sh up        start what is not running, return when the node is Ready (installs what it needs)
#                         "install images" and "up images" also build the project's images, beside the
#                         programs; dev/images.sh loads them
#   dev/node.sh load TAR  import an image archive into the node
#   dev/node.sh etcd-save DIR      copy what etcd stores
#   dev/node.sh etcd-replace [DIR] go on with that copy, or with an empty store; pods run on meanwhile
#   dev/node.sh restart   stop Kubernetes' programs and start them again; pods run on meanwhile
#   dev/node.sh status    what runs; exit code 0 only if everything does and the node is Ready
#   dev/node.sh env       print the shell lines that point kubectl and helm at the node
#   dev/node.sh down      stop everything it started; what is stored (etcd, volumes, images) stays
#   dev/node.sh destroy   down, and forget the cluster: etcd, volumes, images, certificates;
#                         "destroy all" also removes the built binaries and base images
#
# PLIMSOLL_NODE_ROOT (default /var/tmp/plimsoll-node) holds everything it makes. A second node on the
# same machine is not possible: addresses and ports are fixed. With PLIMSOLL_NODE_FAMILY=ipv6 the node,
# its pods and its Services have addresses of IPv6 alone; what is stored is of one family ("destroy").
set -Eeuo pipefail
trap 'echo "node: failed: $BASH_COMMAND (${BASH_SOURCE[0]##*/}, line $LINENO); logs are in ${LOG:-?}" >&2' ERR

DEV=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=${PLIMSOLL_NODE_ROOT:-/var/tmp/plimsoll-node}
BIN=$ROOT/bin PKI=$ROOT/pki LOG=$ROOT/log RUN=$ROOT/run ETC=$ROOT/etc
SOCKET=$ROOT/containerd/c.sock
# Addresses set aside for benchmarks (RFC 2544, RFC 5180): no route to them leaves this machine.
FAMILY=${PLIMSOLL_NODE_FAMILY:-ipv4}
case $FAMILY in
  ipv4) NODE_IP=198.17.255.1 POD_CIDR=198.18.0.0/24 SERVICE_CIDR=198.19.0.0/16 API_SERVICE_IP=198.19.0.1
    NODE_HOST=$NODE_IP HOST_BITS=32 EVERYWHERE=0.0.0.0/0 REVERSE=in-addr.arpa ;;
  ipv6) NODE_IP=2001:2::1 POD_CIDR=2001:2:0:1::/112 SERVICE_CIDR=2001:2:0:2::/112 API_SERVICE_IP=2001:2:0:2::1
    NODE_HOST="[$NODE_IP]" HOST_BITS=128 EVERYWHERE=::/0 REVERSE=ip6.arpa ;;
  *) echo "node: PLIMSOLL_NODE_FAMILY is ipv4 or ipv6, not $FAMILY" >&2; exit 2 ;;
esac
NODE_NAME=node1 BRIDGE=knode0
export PATH=$BIN:$PATH:/usr/sbin:/sbin KUBECONFIG=$PKI/admin.conf
# buildah's storage lies beside the rest instead of in the machine's own.
export CONTAINERS_STORAGE_CONF=$ETC/storage.conf BUILDAH_ISOLATION=chroot

for part in process install pki images configure start stop etcd; do
  # shellcheck source=/dev/null
  source "$DEV/node/$part.sh"
done

say() { echo "node: $*" >&2; }
die() { say "$*"; exit 1; }

env_lines() { printf 'export KUBECONFIG=%q\nexport PATH=%q:"$PATH"\n' "$KUBECONFIG" "$BIN"; }

usage() { sed -n '2,/^set -Eeuo/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

main() {
  local verb=${1:-help}
  [ $# -eq 0 ] || shift
  case $verb in
    env) env_lines; return ;;
    status) node_status || exit 1; return ;;  # no failure of this script: the trap keeps quiet
    help | -h | --help) usage; return ;;
    install | up | load | down | destroy | restart | etcd-save | etcd-replace) ;;
    *) usage >&2; exit 2 ;;
  esac
  [ "$(id -u)" = 0 ] || die "a node needs root: namespaces, mounts and routes are made"
  mkdir -p "$BIN" "$LOG" "$RUN" "$ETC"
  exec 9>"$ROOT/lock"
  flock -w 1800 9 || die "another $0 has held $ROOT/lock for half an hour"
  write_storage_conf
  case $verb in
    install) node_install "$@" ;;
    up) node_up "$@" ;;
    load) load_archive "$@" ;;
    down) node_down ;;
    restart) kubernetes_restart ;;
    etcd-save) etcd_save "$1" ;;
    etcd-replace) etcd_replace "$@" ;;
    destroy) node_destroy "${1:-}" ;;
  esac
}

# Sourced by images.sh for its paths and helpers, run by everyone else.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then main "$@"; fi
