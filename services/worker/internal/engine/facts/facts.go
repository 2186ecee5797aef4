// Package facts says what an engine serves, in words that every kind of engine
// shares. Only data lives here: each kind finds its facts in its own package. It
// is apart from the list of kinds so that kinds can import it without a circle.
// The invariant: a fact is what the engine said when it was asked, and what it
// did not say is zero. To add a fact, add a field with the meaning of its zero.
package facts

// Engine is what one engine said of itself.
type Engine struct {
	// Kind is the kind of engine, such as "vllm".
	Kind   string
	Models []Model
}

// Model is one model that the engine serves.
type Model struct {
	// Name is what the engine calls the model.
	Name string
	// Window is the context length in tokens, 0 when the engine does not tell.
	Window int64
	// Modalities are what the model takes: "text", and perhaps "image" or "audio".
	Modalities []string
	// Features are abilities that not every engine has; pkg/llm names them.
	Features []string
}
