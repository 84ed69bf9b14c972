# Configuration files of the node's processes, written anew at each start.  Sourced by node.sh.
# shellcheck shell=bash

configure() {
  echo "$FAMILY" >"$ROOT/family"
  mkdir -p "$ETC/cni" "$ROOT/containerd" "$ROOT/volumes" "$LOG/pods"
  write_cni
  write_containerd
  write_coredns
  write_kubelet
}

write_cni() {
  # ptp, not bridge: each pod hangs on a pair of its own, so what a pod sends to a Service comes back
  # through the host's connection tracking even when the answering pod is its neighbour, and nothing
  # but the pod has to be removed.
  cat >"$ETC/cni/10-pods.conflist" <<E
{"cniVersion": "0.4.0", "name": "plimsoll-pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "$RUN/cni",
   "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "$EVERYWHERE"}]}}]}
E
}

write_containerd() {
  cat >"$ETC/containerd.toml" <<E
version = 2
root = "$ROOT/containerd/root"
state = "$ROOT/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "$SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  restrict_oom_score_adj = true # a machine that is a container itself may not lower scores
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$ETC/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
E
}

write_coredns() {
  cat >"$ETC/Corefile" <<E
.:53 {
  bind $NODE_IP
  errors
  kubernetes cluster.local $REVERSE {
    kubeconfig $PKI/admin.conf
    pods insecure
    ttl 1
  }
  cache 1
}
E
}

write_kubelet() {
  echo "# pods ask the node's CoreDNS and nobody else" >"$ETC/resolv.conf"
  cat >"$ETC/kubelet.yaml" <<E
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: "$NODE_IP"
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
failSwapOn: false
failCgroupV1: false # some machines still have nothing newer
enforceNodeAllocatable: []
clusterDNS: ["$NODE_IP"]
clusterDomain: cluster.local
resolvConf: $ETC/resolv.conf
makeIPTablesUtilChains: false # kube-proxy uses nftables; nothing else here needs the kubelet's chains
podLogsDir: $LOG/pods
volumePluginDir: $ROOT/kubelet/volume-plugins
containerRuntimeEndpoint: unix://$SOCKET
featureGates: {KubeletCrashLoopBackOffMax: true}
crashLoopBackOff: {maxContainerRestartPeriod: 10s} # tests kill the same process again and again; 5 minutes by default
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100 # an image that is collected here cannot be pulled again
maxPods: 200
syncFrequency: 10s # a pod is shown a changed Secret at its next sync, which is a minute away by default
tlsCertFile: $PKI/kubelet.crt
tlsPrivateKeyFile: $PKI/kubelet.key
E
}
