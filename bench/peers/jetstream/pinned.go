//go:build pinned

// Package pinned names the server, so that go.mod pins it.
package pinned

import _ "github.com/nats-io/nats-server/v2"
