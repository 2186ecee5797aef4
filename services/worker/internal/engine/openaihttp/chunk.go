package openaihttp

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// errShape says that JSON of an engine is not what this API sends.
var errShape = errors.New("chunk has an unexpected shape")

// piece is what one chunk, or a whole answer, says. Byte slices point into the
// bytes it was read from. Text may begin and end with half a character; see halves.
type piece struct {
	text, reasoning string
	calls           []callPiece
	// logprobs is the array of entries, nil when there are none; parts are those of
	// a completion, which may be many.
	logprobs []byte
	parts    [][]byte
	// scores are arrays of entries for a span of the prompt.
	scores [][]byte
	finish string
	// counted tells whether usage was given. With running set it came from the
	// engine's timings, which real usage replaces.
	counted, running bool
	usage            llm.Usage
	fault            *fault.Error
}

// callPiece is a piece of a tool call. The index is the engine's, -1 when it
// gave none.
type callPiece struct {
	index         int64
	id, name, arg string
}

type wireChunk struct {
	Object  jsontext.Value `json:"object"`
	Choices []*wireChoice  `json:"choices"`
	Usage   *wireUsage     `json:"usage"`
	Timings *wireTimings   `json:"timings"`
	Error   jsontext.Value `json:"error"`
}

type wireChoice struct {
	Index   int64      `json:"index"`
	Delta   *wireDelta `json:"delta"`
	Message *wireDelta `json:"message"`
	// Text is a completion's.
	Text     *halved    `json:"text"`
	Logprobs *wireLists `json:"logprobs"`
	Finish   string     `json:"finish_reason"`
}

type wireDelta struct {
	Content          halved      `json:"content"`
	Reasoning        halved      `json:"reasoning"`
	ReasoningContent halved      `json:"reasoning_content"`
	Calls            []*wireCall `json:"tool_calls"`
	// Refusal is what the model says instead of an answer.
	Refusal jsontext.Value `json:"refusal"`
}

type wireCall struct {
	Index    *int64 `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	} `json:"function"`
}

type wireUsage struct {
	Prompt        *int64 `json:"prompt_tokens"`
	Completion    *int64 `json:"completion_tokens"`
	PromptDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Details struct {
		Reasoning *int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	// SGLang puts the count beside the others.
	Reasoning *int64 `json:"reasoning_tokens"`
}

// wireTimings is what llama.cpp tells of its work: the prompt is what was
// cached and what was not.
type wireTimings struct {
	Cached    int64 `json:"cache_n"`
	Prompt    int64 `json:"prompt_n"`
	Predicted int64 `json:"predicted_n"`
}

// decodeChunk reads any chunk or whole answer. The usual chunk goes a shorter
// way, see quick.
func decodeChunk(data []byte) (piece, error) {
	var w wireChunk
	err := json.Unmarshal(data, &w, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return piece{}, err
	}
	if len(w.Error) > 0 && w.Error.Kind() != 'n' || string(w.Object) == `"error"` {
		return piece{fault: reported(data)}, nil
	}
	var p piece
	if w.Usage != nil {
		p.usage, p.counted = w.Usage.internal()
	}
	if !p.counted && w.Timings != nil {
		p.counted, p.running = true, true
		p.usage = counts(w.Timings.Cached+w.Timings.Prompt, w.Timings.Cached, w.Timings.Predicted, nil)
	}
	if len(w.Choices) == 0 {
		return p, nil
	}
	// One choice was asked for. Another one is not ours to sell.
	if len(w.Choices) > 1 || w.Choices[0] == nil || w.Choices[0].Index != 0 {
		return piece{}, errShape
	}
	return p, p.choice(w.Choices[0])
}

func (p *piece) choice(c *wireChoice) error {
	p.finish = c.Finish
	if c.Logprobs != nil {
		switch c.Logprobs.Content.Kind() {
		case '[':
			p.logprobs = entries(c.Logprobs.Content)
		case 'n', jsontext.KindInvalid:
		default:
			return errShape
		}
		var err error
		if p.parts, err = c.Logprobs.entries(); err != nil {
			return err
		}
	}
	if c.Text != nil {
		p.text = string(*c.Text)
	}
	d := c.Delta
	if d == nil {
		d = c.Message
	}
	if d == nil {
		return nil
	}
	if c.Text == nil {
		// No refusal is a kind of its own here; its words are the answer.
		p.text = string(d.Content) + word(d.Refusal)
	}
	// Engines that renamed the member send both for a while.
	p.reasoning = string(d.ReasoningContent)
	if p.reasoning == "" {
		p.reasoning = string(d.Reasoning)
	}
	for _, c := range d.Calls {
		if c == nil {
			return errShape
		}
		call := callPiece{index: -1, id: c.ID, name: c.Function.Name}
		if c.Index != nil {
			if call.index = *c.Index; call.index < 0 || call.index >= llm.CallsMax {
				return errShape
			}
		}
		switch c.Function.Arguments.Kind() {
		case '"':
			var arg halved
			if err := arg.UnmarshalJSON(c.Function.Arguments); err != nil {
				return err
			}
			call.arg = string(arg)
		case '{':
			call.arg = string(c.Function.Arguments)
		case 'n', jsontext.KindInvalid:
		default:
			return errShape
		}
		p.calls = append(p.calls, call)
	}
	return nil
}

// entries drops an array that holds nothing.
func entries(array jsontext.Value) []byte {
	for _, c := range array[1:] {
		switch c {
		case ' ', '\t', '\n', '\r':
		case ']':
			return nil
		default:
			return array
		}
	}
	return nil
}

// internal gives the counts, and whether they are any: an object that lacks one of the
// two that are paid for, or has an impossible one, tells nothing.
func (u *wireUsage) internal() (_ llm.Usage, counted bool) {
	if u.Prompt == nil || u.Completion == nil || *u.Prompt < 0 || *u.Completion < 0 {
		return llm.Usage{}, false
	}
	reasoning := u.Details.Reasoning
	if reasoning == nil {
		reasoning = u.Reasoning
	}
	return counts(*u.Prompt, u.PromptDetails.Cached, *u.Completion, reasoning), true
}

// counts keeps the parts within the whole: engines have been seen to report
// more cached than there was.
func counts(prompt, cached, completion int64, reasoning *int64) llm.Usage {
	u := llm.Usage{Prompt: max(0, prompt), Completion: max(0, completion)}
	u.Cached = min(max(0, cached), u.Prompt)
	if reasoning != nil {
		r := min(max(0, *reasoning), u.Completion)
		u.Reasoning = &r
	}
	return u
}
