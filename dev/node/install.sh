# Everything the node needs, from package registries only: Debian's and Go's.  Sourced by node.sh.
# shellcheck shell=bash

# The versions of everything else that Go builds stand in kubenode/go.mod.
KUBERNETES_VERSION=1.34.4
# shellcheck source=dev/go.sh
source "$DEV/go.sh"

node_install() { # [images]: what the node itself and helm need; beside it, the project's images
  install_packages
  find_go
  # Images need the network and little CPU, the Go builds the opposite.
  build_all_images "$@" 9>&- &
  local images=$!
  build_kubenode
  wait "$images" || die "building the images failed"
}

build_all_images() { # [images]
  quietly base-images base_images || exit 1
  case " $* " in *" images "*) "$DEV/images.sh" --build-only ;; esac
}

install_packages() { # a command that is there already (docker's containerd, say) is used as it is
  local missing=() pair
  for pair in containerd:containerd runc:runc buildah:buildah mmdebstrap:mmdebstrap nft:nftables \
    iptables:iptables conntrack:conntrack ip:iproute2 mount:mount openssl:openssl python3:python3 \
    gcc:gcc flock:util-linux setsid:util-linux; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  [ -x /usr/lib/cni/ptp ] || missing+=(containernetworking-plugins)
  [ -e /usr/include/unistd.h ] || missing+=(libc6-dev)
  [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
  [ ${#missing[@]} -gt 0 ] || return 0
  say "Debian packages: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >"$LOG/apt.log" 2>&1 || { tail -n 20 "$LOG/apt.log" >&2; die "apt-get install failed"; }
}

build_kubenode() {
  # One call for everything that shares Kubernetes' packages: they are compiled once.
  local version=k8s.io/component-base/version name
  step kubenode "$KUBERNETES_VERSION $(hash_of "$DEV"/kubenode/*.* "$DEV"/kubenode/*/*)" \
    go_build kubenode -ldflags "-s -w -X $version.gitVersion=v$KUBERNETES_VERSION
      -X $version.gitMajor=1 -X $version.gitMinor=${KUBERNETES_VERSION:2:2}" . ./coredns helm.sh/helm/v3/cmd/helm
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
    ln -sf kubenode "$BIN/$name"
  done
}

step() { # NAME STAMP COMMAND...: skipped when it was done with the same stamp
  local name=$1 stamp=$2 began=$SECONDS
  shift 2
  [ "$(cat "$BIN/.$name.stamp" 2>/dev/null)" != "$stamp" ] || return 0
  say "building $name"
  quietly "build-$name" "$@" || die "building $name failed"
  echo "$stamp" >"$BIN/.$name.stamp"
  say "built $name in $((SECONDS - began)) s"
}

quietly() { # LOG-NAME COMMAND...: every ten seconds, how far it is; the end of its log if it fails
  local name=$1 log=$LOG/$1.log began=$SECONDS pid
  shift
  "$@" >"$log" 2>&1 &
  pid=$!
  while ! timeout 10 tail --pid="$pid" -f /dev/null; do
    say "  $name, $((SECONDS - began)) s: $(how_far "$log")"
  done
  wait "$pid" || { tail -n 20 "$log" >&2; return 1; }
}

how_far() { # LOG: packages compiled of packages known, where it is a Go build's; else its last line
  local known compiled
  known=$(sed -n 's/^packages to compile: //p' "$1")
  [ -n "$known" ] || { tail -n 1 "$1" | sed -E 's/^[0-9a-f]{64}$//' | cut -c1-80; return; }
  compiled=$(sed '1,/^packages to compile/d' "$1" | wc -l)
  echo "$((compiled < known ? compiled : known)) of $known packages compiled"
}

hash_of() { cat "$@" | sha256sum | cut -c1-16; }

go_build() { # MODULE-FOLDER FLAGS-AND-PACKAGES...
  export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -trimpath"
  cd "$DEV/$1"
  shift
  # The modules are fetched here, so that what the build prints is packages alone.
  echo "packages to compile: $("$GO" list -deps "$@" | wc -l)"
  # The linker drops debugging information (-s -w), so compilers need not write it.
  nice -n 5 "$GO" build -v -gcflags=all=-dwarf=false -o "$BIN/" "$@"
}
