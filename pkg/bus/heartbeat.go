package bus

import "time"

// Heartbeat is what a worker says of itself for one model, every few seconds.
type Heartbeat struct {
	// Worker is unique for each start of a worker process.
	Worker string `json:"worker"`
	// Name is what the operator calls the worker; it stays over restarts.
	Name    string  `json:"name"`
	Model   string  `json:"model"`
	Region  string  `json:"region"`
	Classes []Class `json:"classes"`
	// Engine is the kind of engine, such as "vllm" or "simulator".
	Engine string `json:"engine"`
	// Slots is how many jobs run at once at most, InFlight how many run now.
	Slots    int `json:"slots"`
	InFlight int `json:"in_flight"`
	// Dispatched is how many of InFlight came by Dispatch. The others are in a
	// queue until they are done: a model's demand is what its queues hold and this.
	Dispatched int `json:"dispatched,omitzero"`
	// Window is the engine's context length in tokens, 0 when unknown.
	Window int64 `json:"window,omitzero"`
	// Modalities are what the model takes: "text", "image", "audio".
	Modalities []string `json:"modalities"`
	// Features are abilities that not every engine has; pkg/llm names them.
	Features []string  `json:"features,omitzero"`
	Time     time.Time `json:"time"`
}
