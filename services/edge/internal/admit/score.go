package admit

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// features finds what the engine must be able to do. What a raw prompt needs and
// no live worker has is told at once; what a chat would like to have counts where
// somebody has it.
func (a *Admission) features(live Live) error {
	for _, feature := range a.Request.Features() {
		if slices.Contains(live.Features, feature) {
			a.Need.Features = append(a.Need.Features, feature)
			continue
		}
		if lacks := lacking(feature); lacks != "" && a.Request.Raw != nil {
			return fault.At("prompt", "no live worker of model '"+a.Model.ID+"' "+lacks)
		}
	}
	return nil
}

// lacking says in words what nobody does.
func lacking(feature string) string {
	switch feature {
	case llm.FeatureRaw:
		return "takes raw prompts"
	case llm.FeatureIDs:
		return "takes token ids; send the prompt as a string"
	case llm.FeatureScore:
		return "can score prompts"
	}
	return ""
}

// exact tells whether the prompt's length is known and no estimate.
func exact(req *llm.Request) bool { return req.Raw != nil && req.Raw.IDs != nil }

// scored bounds the tokens whose log-probabilities a call asks for, as an engine's
// memory does. A string is not tokenised here, only estimated from its length.
func (a *Admission) scored() error {
	raw, limit := a.Request.Raw, a.Model.ScoreMax
	if raw == nil || raw.ScoreFrom == nil && !raw.Echo {
		return nil
	}
	tokens := raw.IDs.Len()
	if tokens == 0 {
		tokens = (int64(raw.Text.Chars()) + CharsPerToken - 1) / CharsPerToken
	}
	if raw.IDs == nil && tokens <= limit {
		tokens = dense(raw.Text)
	}
	switch {
	case raw.ScoreFrom == nil && tokens > limit:
		return fault.At("echo", fmt.Sprintf(
			"echo is for prompts of at most %d tokens, and this one has %s; to score part of a longer prompt send logprob_start_len",
			limit, a.about(tokens)))
	case raw.ScoreFrom == nil:
	case raw.IDs == nil && tokens > limit:
		return fault.At("prompt", fmt.Sprintf(
			"a string is not tokenised here: its length makes it %s, more than the %d that can be scored; send the prompt as token ids",
			a.about(tokens), limit))
	case raw.IDs != nil && tokens-*raw.ScoreFrom > limit:
		return fault.At("logprob_start_len", fmt.Sprintf(
			"logprob_start_len %d leaves %d tokens to score of a prompt of %d, more than the limit of %d; split the span over several calls",
			*raw.ScoreFrom, tokens-*raw.ScoreFrom, tokens, limit))
	}
	return nil
}

// dense estimates a short text with what scripts beside Latin take: about a token
// for each character. It bounds memory, so it must not be low.
func dense(text llm.Verbatim) int64 {
	s, err := text.Decode()
	if err != nil {
		return 0 // it was read before
	}
	quarters := int64(0)
	for _, r := range s {
		if r < utf8.RuneSelf {
			quarters++
		} else {
			quarters += CharsPerToken
		}
	}
	return (quarters + CharsPerToken - 1) / CharsPerToken
}

func (a *Admission) about(tokens int64) string {
	if exact(a.Request) {
		return fmt.Sprint(tokens)
	}
	return fmt.Sprintf("about %d", tokens)
}

// roomy is how many tokens the prompt has at most, unless it is most unusual: which
// window holds it depends on it, and what it costs does not. Text of other scripts
// than Latin has more tokens than its characters suggest, but not more than a
// third of its bytes.
func (a *Admission) roomy() int64 {
	req := a.Request
	if exact(req) {
		return req.PromptTokens
	}
	bytes, media := 0, 0
	for i := range req.Items {
		it := &req.Items[i]
		bytes += len(it.Reasoning)
		for j := range it.Parts {
			bytes += len(it.Parts[j].Text)
			if it.Parts[j].Media != nil {
				media++
			}
		}
		for _, c := range it.Calls {
			bytes += len(c.Arguments)
		}
	}
	for i := range req.Tools {
		bytes += len(req.Tools[i].Description) + len(req.Tools[i].Schema)
	}
	if req.Raw != nil {
		bytes += len(req.Raw.Text)
	}
	return max(req.PromptTokens, int64(bytes)/3) + int64(media)*MediaTokens
}
