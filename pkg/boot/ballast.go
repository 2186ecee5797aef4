package boot

import (
	"os"
	"runtime"
)

// ballastBytes is address space, not memory: nothing ever writes to it. The
// collector counts it as live, so a service with few live bytes collects after 32
// MiB of garbage and more, not after each 4 MiB.
const ballastBytes = 32 << 20

// Ballast keeps a service from collecting its garbage all the time, until drop is
// called: what it keeps is small, what passes through is not. An operator who sets
// GOGC or GOMEMLIMIT has decided, and there is none.
func Ballast() (drop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	b := make([]byte, ballastBytes)
	return func() { runtime.KeepAlive(b) }
}
