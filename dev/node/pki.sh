# Certificates and kubeconfigs of the node: one authority, one identity per component.
# Sourced by node.sh.
# shellcheck shell=bash

make_pki() {
  [ ! -f "$PKI/done" ] || return 0
  rm -rf "$PKI"
  mkdir -m 700 -p "$PKI"
  local names="DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
  names+=",DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$NODE_IP,IP:$API_SERVICE_IP"
  {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$PKI/ca.key" -out "$PKI/ca.crt" \
      -subj /CN=plimsoll-node -days 3650
    openssl genrsa -out "$PKI/sa.key" 2048
    openssl rsa -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub"
    certificate apiserver /CN=kube-apiserver "$names"
    certificate kubelet-client /O=system:masters/CN=apiserver-kubelet-client
    certificate admin /O=system:masters/CN=admin
    certificate controllers /CN=system:kube-controller-manager
    certificate scheduler /CN=system:kube-scheduler
    certificate proxy /CN=system:kube-proxy
    certificate kubelet "/O=system:nodes/CN=system:node:$NODE_NAME" "DNS:$NODE_NAME,IP:$NODE_IP"
    local user
    for user in admin controllers scheduler proxy kubelet; do kubeconfig "$user"; done
  } >"$LOG/pki.log" 2>&1
  touch "$PKI/done"
}

certificate() { # NAME SUBJECT [ALTERNATIVE-NAMES]
  openssl req -newkey rsa:2048 -nodes -keyout "$PKI/$1.key" -out "$PKI/$1.csr" -subj "$2"
  openssl x509 -req -in "$PKI/$1.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial \
    -out "$PKI/$1.crt" -days 3650 \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=clientAuth,serverAuth\n' "${3:-DNS:localhost}")
}

kubeconfig() { # NAME
  local config=("$BIN/kubectl" config --kubeconfig="$PKI/$1.conf")
  "${config[@]}" set-cluster plimsoll --server="https://$NODE_HOST:6443" \
    --certificate-authority="$PKI/ca.crt" --embed-certs
  "${config[@]}" set-credentials "$1" --client-certificate="$PKI/$1.crt" --client-key="$PKI/$1.key" --embed-certs
  "${config[@]}" set-context plimsoll --cluster=plimsoll --user="$1"
  "${config[@]}" use-context plimsoll
}
