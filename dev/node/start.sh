# Starting the node, and saying whether it is up.  Sourced by node.sh.
# shellcheck shell=bash

COMPONENTS=(etcd apiserver controllers scheduler containerd coredns kubelet proxy volumes)

node_up() { # [images]
  local began=$SECONDS
  if node_is_up; then env_lines; return 0; fi
  [ ! -d "$ROOT/etcd" ] || [ "$(cat "$ROOT/family" 2>/dev/null || echo ipv4)" = "$FAMILY" ] ||
    die "what $ROOT stores is of a node of $(cat "$ROOT/family"): $0 destroy first"
  node_install "$@"
  began=$SECONDS
  make_pki
  configure
  network_up
  ulimit -n 1048576 2>/dev/null || true
  # Of these programs, which are all written in Go: garbage is collected less often than Go does it by
  # default, as long as a program stays below a gibibyte.
  export GOGC=400 GOMEMLIMIT=1GiB
  start_control_plane
  start_containerd
  start_node
  apply_storage_class
  must_come 120 kubelet node_is_ready
  prefer_node
  say "Ready after $((SECONDS - began)) s"
  env_lines
}

network_up() {
  # A bridge without ports carries the node's address, for kernels without the dummy device; the route
  # lets the host's own processes reach Services, whose addresses exist in no other table.
  if ! ip link show "$BRIDGE" >/dev/null 2>&1; then
    ip link add "$BRIDGE" type bridge
    ip addr add "$NODE_IP/$HOST_BITS" dev "$BRIDGE" $([ "$FAMILY" = ipv4 ] || echo nodad)
    ip link set "$BRIDGE" up
    ip route add "$SERVICE_CIDR" dev "$BRIDGE"
  fi
  case $FAMILY in ipv4) sysctl -qw net.ipv4.ip_forward=1 ;; ipv6) sysctl -qw net.ipv6.conf.all.forwarding=1 ;; esac
}

start_control_plane() {
  # fsync stays on, since the safety of this product rests on etcd keeping what it acknowledged; it took
  # 2 ms in the mean (median under 1 ms) on a virtual disk with two busy cores.
  start etcd etcd --data-dir "$ROOT/etcd" --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
    --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380 \
    --log-level warn
  start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address="$NODE_IP" \
    --advertise-address="$NODE_IP" --secure-port=6443 --service-cluster-ip-range="$SERVICE_CIDR" \
    --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --client-ca-file="$PKI/ca.crt" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" \
    --service-account-issuer=https://kubernetes.default.svc --allow-privileged=true \
    --kubelet-client-certificate="$PKI/kubelet-client.crt" --kubelet-client-key="$PKI/kubelet-client.key" \
    --kubelet-preferred-address-types=InternalIP
  # The controller manager ends itself when it meets an API server that is not ready yet.
  must_come 120 apiserver kubectl get --raw /readyz
  local who
  who=$PKI/controllers.conf
  start controllers kube-controller-manager --kubeconfig="$who" --authentication-kubeconfig="$who" \
    --authorization-kubeconfig="$who" --bind-address=127.0.0.1 --leader-elect=false \
    --service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" \
    --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
    --use-service-account-credentials=true
  who=$PKI/scheduler.conf
  start scheduler kube-scheduler --kubeconfig="$who" --authentication-kubeconfig="$who" \
    --authorization-kubeconfig="$who" --bind-address=127.0.0.1 --leader-elect=false
}

start_containerd() {
  start containerd containerd -c "$ETC/containerd.toml"
  must_come 60 containerd ctr -a "$SOCKET" version
  local image
  for image in "$PAUSE_IMAGE" "$PYTHON_BASE"; do has_image "$image" || load_built "$image"; done
}

start_node() {
  start coredns coredns -conf "$ETC/Corefile"
  start kubelet kubelet --config="$ETC/kubelet.yaml" --kubeconfig="$PKI/kubelet.conf" \
    --hostname-override="$NODE_NAME" --node-ip="$NODE_IP" --root-dir="$ROOT/kubelet"
  kubectl get clusterrolebinding plimsoll-node-proxy >/dev/null 2>&1 ||
    kubectl create clusterrolebinding plimsoll-node-proxy --clusterrole=system:node-proxier \
      --user=system:kube-proxy >/dev/null
  start proxy kube-proxy --kubeconfig="$PKI/proxy.conf" --hostname-override="$NODE_NAME" \
    --proxy-mode=nftables --cluster-cidr="$POD_CIDR" --conntrack-max-per-core=0 \
    --healthz-bind-address=127.0.0.1:10256 --metrics-bind-address=127.0.0.1:10249
  start volumes python3 "$DEV/volumes.py" --pki "$PKI" --server "$NODE_HOST:6443" \
    --volumes "$ROOT/volumes" --node "$NODE_NAME"
}

prefer_node() {
  # The other tests of this project run beside pods, in sessions of their own: heartbeats, leases and
  # probes must not wait for a processor behind those.  Linux shares the processors among sessions
  # (autogroup, sched(7)) and the cgroup of all pods; these get about four times a session's share.
  local name pid
  for name in "${COMPONENTS[@]}"; do
    read -r pid _ <"$RUN/$name.pid" && { echo -6 >"/proc/$pid/autogroup"; } 2>/dev/null || true
  done
  { echo 4096 >/sys/fs/cgroup/cpu/kubepods/cpu.shares; } 2>/dev/null ||
    { echo 400 >/sys/fs/cgroup/kubepods/cpu.weight; } 2>/dev/null || true
}

apply_storage_class() { kubectl apply -f "$DEV/storageclass.yaml" >/dev/null; }

node_is_ready() {
  [ "$(kubectl get node "$NODE_NAME" --request-timeout=5s \
    -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]
}

node_is_up() {
  local name
  for name in "${COMPONENTS[@]}"; do alive "$name" || return 1; done
  node_is_ready 2>/dev/null
}

node_status() {
  local name bad=0
  for name in "${COMPONENTS[@]}"; do
    if alive "$name"; then
      echo "$name: running, pid $(cut -d' ' -f1 "$RUN/$name.pid")"
    else
      echo "$name: not running"
      bad=1
    fi
  done
  if [ $bad = 0 ] && node_is_ready 2>/dev/null; then echo "node: Ready"; else echo "node: not ready"; bad=1; fi
  return $bad
}
