package bus

import (
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// Frames carries what happened in one or several jobs of one owner.
type Frames struct {
	Frames []Frame `json:"frames"`
}

// Frame is the next piece of one job.
type Frame struct {
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
	// Seq counts the frames of an attempt from 1 without gaps. An alive frame
	// has no events and repeats the last number.
	Seq    int         `json:"seq"`
	Events []llm.Event `json:"events,omitzero"`
	// End is set on the last frame.
	End *End `json:"end,omitzero"`
}

// End is the worker's account of an attempt that is over.
type End struct {
	Outcome pricing.Outcome `json:"outcome"`
	Usage   llm.Usage       `json:"usage"`
}
