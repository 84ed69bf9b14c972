# Stopping the node so that nothing of it is left running, mounted or routed.  Sourced by node.sh.
# shellcheck shell=bash

node_down() {
  stop proxy
  stop volumes
  stop kubelet
  stop_containers
  stop coredns
  stop containerd
  stop_shims
  stop scheduler
  stop controllers
  stop apiserver 20
  stop etcd 20
  unmount_all
  network_down
  cgroups_down
}

stop_containers() {
  # What runs in pods ends as in a power cut.  The brokers must survive that anyway, and what is stored
  # stays: the next "up" starts the same pods on the same volumes.
  alive containerd || return 0
  local id namespaces
  namespaces=$(for id in $(in_node containers ls -q); do
    in_node containers info "$id" | sed -n 's|.*"path": "/var/run/netns/\(cni-[^"]*\)".*|\1|p'
  done | sort -u)
  for id in $(in_node tasks ls -q); do in_node tasks kill -s SIGKILL "$id" >/dev/null 2>&1 || true; done
  wait_for 10 no_task_runs || say "some containers did not end; their shims are stopped next"
  for id in $(in_node containers ls -q); do
    in_node tasks rm -f "$id" >/dev/null 2>&1 || true
    in_node containers rm "$id" >/dev/null 2>&1 || true
  done
  for id in $namespaces; do ip netns delete "$id" 2>/dev/null || true; done
  rm -rf "$RUN/cni" # addresses given to pods that are gone
}

no_task_runs() { ! in_node tasks ls | grep -q RUNNING; }

stop_shims() { # those that name our socket as their parent's address
  local process
  for process in /proc/[0-9]*; do
    if tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -q "^[^ ]*containerd-shim.* -address $SOCKET"; then
      kill -KILL "${process#/proc/}" 2>/dev/null || true
    fi
  done
}

unmount_all() {
  local at
  awk -v root="$ROOT/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r | while read -r at; do
    umount "$at" 2>/dev/null || umount -l "$at" 2>/dev/null || true
  done
}

network_down() {
  local family
  for family in ip ip6; do nft delete table "$family" kube-proxy 2>/dev/null || true; done
  ip link delete "$BRIDGE" 2>/dev/null || true # its address and route go with it
}

cgroups_down() {
  find /sys/fs/cgroup -depth -type d -path '*/kubepods*' -exec rmdir {} \; 2>/dev/null || true
}

node_destroy() { # [all]
  node_down
  rm -rf "$ROOT"/{etcd,pki,kubelet,volumes,etc,run,log,containerd,family}
  find /var/log/containers -xtype l -delete 2>/dev/null || true # the kubelet's links into LOG
  [ "${1:-}" != all ] || rm -rf "$ROOT"/{bin,go,base,pause,buildah,images}
  say "destroyed"
}
