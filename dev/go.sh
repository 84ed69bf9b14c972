# Go, from package registries only: Debian's and Go's own.  Sourced by node/install.sh and
# conformance_tools.sh, which say where it goes (ROOT), where it logs (LOG), and how to speak
# (say, die).
# shellcheck shell=bash

# The oldest minor release of Go 1 that will do, and the release that is fetched where there is none.
GO_MIN_MINOR=${GO_MIN_MINOR:-24} GO_RELEASE=${GO_RELEASE:-go1.25.5}
GO_TOOLCHAIN=v0.0.1-$GO_RELEASE.linux-$(dpkg --print-architecture 2>/dev/null || echo amd64)

go_is_new_enough() { # GO-COMMAND
  local version
  version=$("$1" env GOVERSION 2>/dev/null) || return 1 # go1.26.8
  version=${version#go1.}
  [ "${version%%[!0-9]*}" -ge $GO_MIN_MINOR ] 2>/dev/null
}

find_go() { # sets GO: the machine's own if it is new enough, else the toolchain module
  local candidate
  for candidate in "$(command -v go || true)" /usr/local/go/bin/go "$ROOT/go/bin/go"; do
    if [ -n "$candidate" ] && go_is_new_enough "$candidate"; then GO=$candidate; return; fi
  done
  obtain_go
  GO=$ROOT/go/bin/go
  go_is_new_enough "$GO" || die "the toolchain module $GO_TOOLCHAIN does not run here"
}

obtain_go() {
  # Go publishes its releases as a module too, which any older go command can download: Debian's is
  # unpacked aside for that, and never installed.
  local work deb
  say "Go: downloading the toolchain module $GO_TOOLCHAIN"
  work=$(mktemp -d)
  chmod 755 "$work" # apt downloads as a user of its own
  (cd "$work" && apt-get update -qq && apt-get download -qq golang-1.19-go golang-1.19-src &&
    for deb in ./*.deb; do dpkg-deb -x "$deb" . || exit 1; done &&
    GOROOT=$work/usr/lib/go-1.19 GOMODCACHE=$work/mod GOCACHE=$work/cache GOFLAGS=-modcacherw \
      usr/lib/go-1.19/bin/go mod download "golang.org/toolchain@$GO_TOOLCHAIN") >"$LOG/go.log" 2>&1 ||
    { tail -n 20 "$LOG/go.log" >&2; die "obtaining Go failed"; }
  rm -rf "$ROOT/go"
  mv "$work/mod/golang.org/toolchain@$GO_TOOLCHAIN" "$ROOT/go"
  rm -rf "$work"
  chmod +x "$ROOT"/go/bin/* "$ROOT"/go/pkg/tool/*/* # module archives carry no file modes
}
