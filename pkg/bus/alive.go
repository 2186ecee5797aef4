package bus

// Alive is a worker's question, once a second, to an owner whose jobs it runs:
// do you still want these? No answer at all tells the worker that the owner
// died.
type Alive struct {
	Jobs []Running `json:"jobs"`
}

// Running names one attempt.
type Running struct {
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
}

// AliveAnswer lists the attempts that nobody wants any more.
type AliveAnswer struct {
	Gone []Running `json:"gone,omitzero"`
}
