package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
)

// Raw is a prompt that the model reads as it stands: no template puts anything
// around it, and no parser takes thoughts or calls out of the answer.
type Raw struct {
	// Text is the prompt, unless IDs holds it.
	Text Verbatim `json:"text,omitzero"`
	IDs  TokenIDs `json:"ids,omitzero"`
	// Echo wants the prompt's text in front of the answer's, with Logprobs the
	// entries of its tokens too.
	Echo bool `json:"echo,omitzero"`
	// ScoreFrom wants the log-probabilities of the prompt's tokens from this offset
	// on, counted in tokens from 0, as Scores events. Nil wants none.
	ScoreFrom *int64 `json:"score_from,omitzero"`
}

// String gives sizes only.
func (r Raw) String() string { return fmt.Sprintf("raw(%s, %s)", r.Text, r.IDs) }

// LogValue keeps content out of logs.
func (r Raw) LogValue() slog.Value { return slog.StringValue(r.String()) }

// Features of an engine that not every request needs and not every engine has.
const (
	FeatureTools    = "tools"
	FeatureLogprobs = "logprobs"
	// FeatureTokenize is that a prompt can be counted without running it.
	FeatureTokenize = "tokenize"
	// FeatureRaw is that a prompt reaches the model as it stands, FeatureIDs that it
	// may be token ids, FeatureScore that log-probabilities of a prompt are told.
	FeatureRaw   = "completions"
	FeatureIDs   = "token_ids"
	FeatureScore = "score"
)

// Features lists what the request needs of an engine. A raw prompt fails without
// any of its own; without the others an engine may still do something.
func (r *Request) Features() []string {
	var list []string
	if len(r.Tools) > 0 && r.Choice != "none" {
		list = append(list, FeatureTools)
	}
	if r.Logprobs {
		list = append(list, FeatureLogprobs)
	}
	if r.Raw == nil {
		return list
	}
	list = append(list, FeatureRaw)
	if r.Raw.IDs != nil {
		list = append(list, FeatureIDs)
	}
	// The text of an echo is known to who has it; its scores, and what ids stand
	// for, are not.
	if r.Raw.ScoreFrom != nil || r.Raw.Echo && (r.Logprobs || r.Raw.IDs != nil) {
		list = append(list, FeatureScore)
	}
	return list
}

// TokenIDs is a list of token ids as it came: a JSON array of whole numbers that
// nobody between the caller and the engine reads. Nil is no list. Who makes one
// sees to it that it holds at least one id and nothing else.
type TokenIDs []byte

// Len counts the ids.
func (t TokenIDs) Len() int64 {
	if len(t) == 0 {
		return 0
	}
	return int64(bytes.Count(t, []byte(","))) + 1
}

// MarshalJSON gives the array.
func (t TokenIDs) MarshalJSON() ([]byte, error) { return t, nil }

var errNoIDs = errors.New("not a list of token ids")

// UnmarshalJSON keeps the array.
func (t *TokenIDs) UnmarshalJSON(raw []byte) error {
	if len(raw) < 3 || raw[0] != '[' {
		return errNoIDs
	}
	*t = bytes.Clone(raw)
	return nil
}

// String gives the size only.
func (t TokenIDs) String() string { return fmt.Sprintf("ids(%d)", t.Len()) }

// GoString gives the size only.
func (t TokenIDs) GoString() string { return t.String() }

// LogValue keeps content out of logs.
func (t TokenIDs) LogValue() slog.Value { return slog.StringValue(t.String()) }

// TokenLogprob is the entry of one token in Event.Logprobs. Numbers stay as the
// engine wrote them.
type TokenLogprob struct {
	// Token is the token's text. In Scores events ID stands instead.
	Token string `json:"token,omitzero"`
	ID    int64  `json:"id,omitzero"`
	// Logprob is null for a token that nothing precedes.
	Logprob json.RawMessage `json:"logprob"`
	// Top holds the likeliest tokens of the position. Nil says that none were given.
	Top []TokenLogprob `json:"top_logprobs,omitzero"`
}

// String says nothing of the token.
func (t TokenLogprob) String() string { return fmt.Sprintf("logprob(%d others)", len(t.Top)) }

// LogValue keeps content out of logs.
func (t TokenLogprob) LogValue() slog.Value { return slog.StringValue(t.String()) }
