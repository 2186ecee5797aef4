package offer

import (
	"time"

	"github.com/engy-ai/engy/pkg/bus"
)

// putOff asks for the hold later, unless many are put off: then one more message
// makes no difference; or the body is large: then what follows takes all there is
// for a while. The lock is held.
func (j *Job) putOff() {
	switch hold := j.order.Hold; {
	case hold == nil:
	case j.d.putOff.Load() >= putOffMax, len(j.order.Body) > bus.ChunkBytes:
		hold()
	default:
		j.d.putOff.Add(1)
		j.hold = time.AfterFunc(j.d.cfg.HoldAfter, func() {
			j.d.putOff.Add(-1)
			hold()
		})
	}
}

// askHold asks for a hold that is still put off. The lock is held.
func (j *Job) askHold() {
	if j.hold != nil && j.hold.Stop() {
		j.d.putOff.Add(-1)
		j.order.Hold()
	}
}
