// Package engine is the list of the kinds of engines that a worker can drive,
// and the interface that they share.
//
// What lives here: Engine, and Open, which picks a kind. What does not: how a
// kind is spoken to, which is a package below for each way of speaking; which
// model of the catalogue has which name at the engine, which is the runner's
// business. The invariant: the runner never learns which kind it drives. To add
// an engine that speaks OpenAI over HTTP, add a row to the quirks of openaihttp;
// for another way of speaking, add a package below and a case to Open.
package engine

import (
	"context"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/worker/internal/engine/facts"
	"github.com/engy-ai/engy/services/worker/internal/engine/openaihttp"
)

// Engine generates.
type Engine interface {
	// Generate runs req on the model that the engine calls name, whatever
	// req.Model says, and pushes the events into sink in order. The last is
	// Done, with Usage; Failed is never pushed. Without Done it returns an
	// error: what sink returned, unchanged, or a *fault.Error whose message is
	// safe to show. When ctx ends, the engine is told to stop and the error
	// wraps ctx's cause. With ErrLost as the cause it is not spoken to any more.
	//
	// The Usage is valid also beside an error: what the engine is known to have
	// produced by then. Where the engine did not tell, each event with text
	// counts as one token, and the prompt is what the engine's tokenizer says
	// of it, or 0.
	Generate(ctx context.Context, name string, req *llm.Request, sink llm.Sink) (llm.Usage, error)
	// Count has the engine's tokenizer count the prompt of req. It runs nothing.
	// An engine without a tokenizer gives an error, and 0 means that it did not
	// tell.
	Count(ctx context.Context, name string, req *llm.Request) (int64, error)
	// Facts asks the engine now what it serves.
	Facts(ctx context.Context) (Facts, error)
	// Health is nil when the engine says that it can work, or says nothing and an
	// answer of it comes meanwhile. One that says nothing at all gives an error that
	// wraps ErrLost.
	Health(ctx context.Context) error
	// Close gives up idle connections. The engine itself goes on.
	Close()
}

// ErrLost says that an engine does not answer any more.
var ErrLost = openaihttp.ErrLost // read-only

// Facts is what an engine says of itself.
type Facts = facts.Engine

// Model is what an engine says of one of its models.
type Model = facts.Model

// Config says where an engine is and how to speak to it.
type Config = openaihttp.Config

// Open makes ready to speak to an engine. It does not wait for the engine: one
// that is still loading answers later, and Generate and Facts say so until then.
func Open(cfg Config) (Engine, error) {
	e, err := openaihttp.New(cfg)
	if err != nil {
		// A nil pointer in an interface is not nil.
		return nil, err
	}
	return e, nil
}
