package responses

import (
	"io"
	"strconv"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/openai"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// Encode gives the sink that writes a response.
func (Codec) Encode(w io.Writer, req *llm.Request, id string, created int64) llm.Sink {
	a := answer{w: w, req: req, note: noteOf(req), id: id, created: created}
	if req.Stream {
		s := &stream{answer: a}
		s.ordered = llm.Ordered(s.add)
		return s.take
	}
	var fold llm.Fold
	ordered := llm.Ordered(fold.Add)
	return func(e llm.Event) error {
		if err := ordered(e); err != nil || !e.Last() {
			return err
		}
		r, err := fold.Response()
		if err != nil {
			return err
		}
		a.finish = r.Finish
		_, err = w.Write(a.appendResponse(nil, &state{status: statusOf(r.Finish), pieces: r.Pieces, usage: &r.Usage, receipt: &r.Receipt}))
		return err
	}
}

// statusOf is the status of an answer that came to an end.
func statusOf(f llm.Finish) string {
	if f == llm.Length || f == llm.Filter {
		return incomplete
	}
	return completed
}

// state is how far an answer has come.
type state struct {
	status string
	pieces []llm.Piece
	// usage and receipt are nil while they are not known.
	usage   *llm.Usage
	receipt *llm.Receipt
	// failed says why there is no more.
	failed *llm.Fault
}

// appendResponse writes the response object.
func (a *answer) appendResponse(b []byte, st *state) []byte {
	b = append(b, `{"id":"resp_`...)
	b = append(b, a.id[:min(idDigits, len(a.id))]...)
	b = append(b, `","object":"response","created_at":`...)
	b = strconv.AppendInt(b, a.created, 10)
	b = wire.Quote(append(b, `,"status":`...), st.status)
	b = append(b, `,"background":false,"completed_at":null,"error":`...)
	b = a.appendFailure(b, st.failed)
	b = append(b, `,"incomplete_details":`...)
	switch {
	case st.status != incomplete:
		b = append(b, "null"...)
	case a.finish == llm.Filter:
		b = append(b, `{"reason":"content_filter"}`...)
	default:
		b = append(b, `{"reason":"max_output_tokens"}`...)
	}
	b = wire.Quote(append(b, `,"model":`...), a.req.Spelling)
	b = append(b, `,"output":[`...)
	for i := range st.pieces {
		if i > 0 {
			b = append(b, ',')
		}
		m := a.make(st.pieces[i], i, i == len(st.pieces)-1)
		b = a.appendItem(b, &m)
	}
	b = append(b, `],"previous_response_id":null,"store":false,"service_tier":"default"`...)
	b = append(b, `,"presence_penalty":0,"frequency_penalty":0`...)
	b = append(b, a.note.echo...)
	b = appendUsage(append(b, `,"usage":`...), st.usage)
	if st.receipt != nil {
		b = openai.Receipt(append(b, ','), *st.receipt)
	}
	return append(b, '}')
}

func appendUsage(b []byte, u *llm.Usage) []byte {
	if u == nil {
		return append(b, "null"...)
	}
	thought := int64(0)
	if u.Reasoning != nil {
		thought = *u.Reasoning
	}
	b = strconv.AppendInt(append(b, `{"input_tokens":`...), u.Prompt, 10)
	b = strconv.AppendInt(append(b, `,"input_tokens_details":{"cached_tokens":`...), u.Cached, 10)
	b = append(b, `,"cache_write_tokens":0},"output_tokens":`...)
	b = strconv.AppendInt(b, u.Completion, 10)
	b = strconv.AppendInt(append(b, `,"output_tokens_details":{"reasoning_tokens":`...), thought, 10)
	b = strconv.AppendInt(append(b, `},"total_tokens":`...), u.Prompt+u.Completion, 10)
	return append(b, '}')
}

// appendFailure writes why an answer failed, null when it did not.
func (a *answer) appendFailure(b []byte, f *llm.Fault) []byte {
	if f == nil {
		return append(b, "null"...)
	}
	text := f.Message
	if f.Code == fault.Internal {
		text = "internal error; request id " + a.id
	}
	b = wire.Quote(append(b, `{"code":`...), failureCode(f.Code))
	b = wire.Quote(append(b, `,"message":`...), text)
	return append(b, '}')
}

// failureCode gives the word that clients act on: they shorten the conversation,
// tell the user, or try again.
func failureCode(c fault.Code) string {
	switch c {
	case fault.Overlong:
		return "context_length_exceeded"
	case fault.NoFunds:
		return "insufficient_quota"
	case fault.Busy:
		return "rate_limit_exceeded"
	case fault.Invalid, fault.TooLarge, fault.HeadTooLarge:
		return "invalid_prompt"
	case fault.Unauthorized, fault.Forbidden, fault.NotFound, fault.NoWorker, fault.Engine, fault.Timeout,
		fault.Canceled, fault.Unavailable, fault.Internal:
	}
	return "server_error"
}
