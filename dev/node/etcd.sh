# What is done to the store of the Kubernetes: saved, brought back, lost.  Sourced by node.sh.
# shellcheck shell=bash

etcd_save() { # DIR: a copy as a disk holds it after a power cut, from which etcd recovers
  local pid
  alive etcd || die "etcd does not run"
  [ ! -e "$1" ] || die "$1 exists"
  read -r pid _ <"$RUN/etcd.pid"
  kill -STOP "$pid"
  cp -a "$ROOT/etcd" "$1" || { kill -CONT "$pid"; die "cannot copy $ROOT/etcd to $1"; }
  kill -CONT "$pid"
}

etcd_replace() { # [DIR]: go on with this copy; without one, with an empty store
  [ $# -eq 0 ] || [ -d "$1" ] || die "$1 is no directory"
  kubernetes_down
  stop etcd 20
  rm -rf "$ROOT/etcd"
  [ $# -eq 0 ] || cp -a "$1" "$ROOT/etcd"
  kubernetes_again
}

kubernetes_down() {
  # Pods run on meanwhile. Whatever watches the API server is stopped too, as the manuals of etcd and
  # Kubernetes ask for a restore, because the versions of objects go back.
  local name
  for name in volumes proxy kubelet coredns scheduler controllers; do stop "$name"; done
  stop apiserver 20
}

kubernetes_again() {
  start_control_plane
  start_node
  apply_storage_class
  must_come 120 kubelet node_is_ready
  prefer_node
}

kubernetes_restart() { # every program but etcd and containerd, as an upgrade does
  kubernetes_down
  kubernetes_again
}
