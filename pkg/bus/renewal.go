package bus

import "time"

// Renewal keeps the holds of jobs that an edge still works for. A hold that is
// not renewed ends by itself: its edge is dead.
type Renewal struct {
	Jobs    []string  `json:"jobs"`
	Expires time.Time `json:"expires"`
}

// RenewalAnswer tells how many of the holds are open.
type RenewalAnswer struct {
	Renewed int64 `json:"renewed"`
}
