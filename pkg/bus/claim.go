package bus

// Claim is a worker's question to the owner of a job: may I have the work?
type Claim struct {
	Job    string `json:"job"`
	Worker string `json:"worker"`
	// Chunk is 0 for the claim itself and counts the further pieces of a large
	// body.
	Chunk int `json:"chunk,omitzero"`
	// Attempt repeats the granted attempt when Chunk is not 0.
	Attempt int `json:"attempt,omitzero"`
}

// Verdict is the owner's answer to a claim.
type Verdict string

const (
	// Granted: the work is yours, under the attempt number in the answer.
	Granted Verdict = "granted"
	// Gone: nobody waits for this job any more.
	Gone Verdict = "gone"
	// Taken: another worker has it.
	Taken Verdict = "taken"
	// Barred: this worker may not have it; the ticket is for others.
	Barred Verdict = "barred"
)

// Grant answers a Claim. Its body follows it in the same message.
type Grant struct {
	Verdict Verdict `json:"verdict"`
	// Attempt numbers the grants of one job, from 1. Frames of any other
	// attempt are dropped.
	Attempt int `json:"attempt,omitzero"`
	// BodyBytes is the size of the whole body, Chunks how many messages carry
	// it; the first is this one.
	BodyBytes int64 `json:"body_bytes,omitzero"`
	Chunks    int   `json:"chunks,omitzero"`
}
