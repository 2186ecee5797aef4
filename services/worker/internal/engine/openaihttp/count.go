package openaihttp

import (
	"context"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// Count has the engine's tokenizer count a prompt; see the interface in package
// engine.
func (e *Engine) Count(ctx context.Context, name string, req *llm.Request) (int64, error) {
	q, err := e.quirks(ctx)
	if err != nil {
		return 0, ended(ctx, err)
	}
	if q.tokenize == "" {
		return 0, fault.New(fault.Engine, "this kind of engine does not count")
	}
	n, err := e.tokens(ctx, q, name, req)
	return n, ended(ctx, err)
}

// tokens asks for the length of a chat or a raw prompt, in the form that all kinds
// with a tokenizer understand.
func (e *Engine) tokens(ctx context.Context, q *quirks, name string, req *llm.Request) (int64, error) {
	var body []byte
	switch {
	case req.Raw == nil:
		body = quote(append(make([]byte, 0, size(req)), `{"model":`...), name)
		body = q.tools(q.messages(body, req), req)
	case req.Raw.IDs != nil:
		return req.Raw.IDs.Len(), nil
	default:
		body = q.prompt(name, req)
	}
	body = append(body, '}')
	var page struct {
		Count int64 `json:"count"`
	}
	if err := e.page(ctx, q.tokenize, body, &page); err != nil {
		return 0, err
	}
	return max(0, page.Count), nil
}
