package openaihttp

import (
	"context"
	"slices"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/facts"
)

// Kinds of engines. OpenAI is any engine that is none of the others.
const (
	VLLM      = "vllm"
	SGLang    = "sglang"
	LlamaCpp  = "llamacpp"
	Ollama    = "ollama"
	Simulator = "simulator"
	OpenAI    = "openai"
)

// quirks is how one kind of engine differs from the others. What engines send
// is read the same way for all kinds, since they change it between versions;
// only what we send and ask depends on the kind.
type quirks struct {
	kind string
	// owners are the values of owned_by in /v1/models that give the kind away,
	// page is a path that only this kind answers, for when they do not.
	owners []string
	page   string
	// running are members of the request and of stream_options that make the
	// engine tell its counts in every chunk, so that work cut short is known.
	runningRequest, runningOptions string
	// effort says effort and thinking where the engine looks for it, given the
	// arguments of the model's template; nil where it is they.
	effort func(model string, args []llm.Field) []llm.Field
	// thoughts is the member of assistant messages that holds reasoning.
	thoughts string
	// choice is set when the engine reads tool_choice.
	choice bool
	// abort is where a request is ended by its rid; engines without it stop
	// when the connection is closed. With rids set every request carries one, else
	// those on SGLang's own route alone.
	abort string
	rids  bool
	// tokenize is where a chat is counted, empty when nowhere.
	tokenize string
	// health is a path that answers 200 when the engine can work.
	health string
	// describe finds windows and modalities that /v1/models does not tell.
	describe func(*Engine, context.Context, *facts.Model)
	// features are what every model of this kind can do.
	features []string
	// asItStands are members that keep an engine from adding tokens to a raw prompt
	// of text.
	asItStands string
	// scores is how the log-probabilities of a prompt are told; named is set when
	// SGLang's own route serves several models.
	scores scoring
	named  bool
}

// can tells whether every model of this kind has a feature.
func (q *quirks) can(feature string) bool { return slices.Contains(q.features, feature) }

// table lists the kinds. The last is the one for everything unknown.
func table() []quirks {
	const continuous = `,"continuous_usage_stats":true`
	return []quirks{
		{
			kind: VLLM, owners: []string{"vllm"},
			// It drops reasoning_content without a word.
			runningOptions: continuous, thoughts: "reasoning", choice: true,
			tokenize: "/tokenize", health: "/health",
			asItStands: `,"add_special_tokens":false`, scores: promptLogprobs,
			features: []string{llm.FeatureTools, llm.FeatureLogprobs, llm.FeatureTokenize, llm.FeatureRaw, llm.FeatureIDs, llm.FeatureScore},
		},
		{
			kind: SGLang, owners: []string{"sglang"}, page: "/get_model_info",
			runningOptions: continuous, thoughts: "reasoning_content", choice: true,
			effort: sglangEffort,
			abort:  "/abort_request", rids: true, tokenize: "/tokenize", health: "/health",
			describe: (*Engine).sglang, scores: native,
			features: []string{llm.FeatureTools, llm.FeatureLogprobs, llm.FeatureTokenize, llm.FeatureRaw, llm.FeatureIDs, llm.FeatureScore},
		},
		{
			// It stops at once when the connection closes, and without a rid the same
			// request is the same bytes.
			kind: Simulator, owners: []string{"engy-simulator"},
			runningOptions: continuous, thoughts: "reasoning_content", choice: true,
			tokenize: "/tokenize", health: "/health",
			abort: "/abort_request", scores: native, named: true,
			features: []string{llm.FeatureTools, llm.FeatureLogprobs, llm.FeatureTokenize, llm.FeatureRaw, llm.FeatureIDs, llm.FeatureScore},
		},
		{
			kind: LlamaCpp, owners: []string{"llamacpp"}, page: "/props",
			runningRequest: `,"timings_per_token":true`, thoughts: "reasoning_content", choice: true,
			health: "/health", describe: (*Engine).llamacpp,
			features: []string{llm.FeatureTools, llm.FeatureLogprobs, llm.FeatureRaw, llm.FeatureIDs},
		},
		{
			kind: Ollama, owners: []string{"library"}, page: "/api/version",
			thoughts: "reasoning", effort: ollamaEffort, health: "/api/version", describe: (*Engine).ollama,
			features: []string{llm.FeatureLogprobs},
		},
		{
			kind: OpenAI, thoughts: "reasoning_content", choice: true, health: "/v1/models",
			features: []string{llm.FeatureTools, llm.FeatureLogprobs, llm.FeatureRaw},
		},
	}
}

// quirksOf finds a kind by its name.
func quirksOf(kind string) (*quirks, bool) {
	rows := table()
	for i := range rows {
		if rows[i].kind == kind {
			return &rows[i], true
		}
	}
	return nil, false
}
