package boot

import (
	"os"
	"sync"
)

// ballastBytes is address space, not memory: nothing ever writes to it. The
// collector counts it as live, so a service with few live bytes collects after 32
// MiB of garbage and more, not after each 4 MiB.
const ballastBytes = 32 << 20

// Ballast keeps a service from collecting its garbage all the time: what it
// keeps is small, what passes through is not. An operator who sets GOGC or
// GOMEMLIMIT has decided, and there is none.
func Ballast() { ballast() }

// ballast remembers what it gave, which keeps it alive.
var ballast = sync.OnceValue(func() []byte {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, ballastBytes)
})
