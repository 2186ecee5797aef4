package bus

import (
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
)

func (t Ticket) appendQuick(b []byte) ([]byte, bool) {
	m := members{b, true}
	m.text(`{"job":`, t.Job)
	m.text(`,"owner":`, t.Owner)
	m.text(`,"region":`, t.Region)
	m.text(`,"model":`, t.Model)
	m.text(`,"class":`, string(t.Class))
	if t.Worker != "" {
		m.text(`,"worker":`, t.Worker)
	}
	m.number(`,"offer":`, int64(t.Offer))
	m.number(`,"prompt_tokens":`, t.PromptTokens)
	m.number(`,"body_bytes":`, t.BodyBytes)
	m.time(`,"deadline":`, t.Deadline)
	if t.Priority != 0 {
		m.number(`,"priority":`, int64(t.Priority))
	}
	if t.Affinity != "" {
		m.text(`,"affinity":`, t.Affinity)
	}
	if t.Trace != "" {
		m.text(`,"trace":`, t.Trace)
	}
	return append(m.b, '}'), m.ok
}

func (t *Ticket) readQuick(r *reader) bool {
	t.read(r)
	if !r.end(``) {
		*t = Ticket{}
		return false
	}
	return true
}

// read takes a ticket that is a member of something.
func (t *Ticket) read(r *reader) {
	*t = Ticket{
		Job: r.text(`{"job":`), Owner: r.text(`,"owner":`), Region: r.text(`,"region":`),
		Model: r.text(`,"model":`), Class: Class(r.text(`,"class":`)),
	}
	if r.word(`,"worker":`) {
		t.Worker = r.text("")
	}
	t.Offer = r.small(`,"offer":`)
	t.PromptTokens, t.BodyBytes = r.number(`,"prompt_tokens":`), r.number(`,"body_bytes":`)
	t.Deadline = r.time(`,"deadline":`)
	if r.word(`,"priority":`) {
		t.Priority = r.small("")
	}
	if r.word(`,"affinity":`) {
		t.Affinity = r.text("")
	}
	if r.word(`,"trace":`) {
		t.Trace = r.text("")
	}
	r.want(`}`)
}

func (d Dispatch) appendQuick(b []byte) ([]byte, bool) {
	b, ok := d.Ticket.appendQuick(append(b, `{"ticket":`...))
	m := members{b, ok}
	m.number(`,"attempt":`, int64(d.Attempt))
	return append(m.b, '}'), m.ok
}

func (d *Dispatch) readQuick(r *reader) bool {
	*d = Dispatch{}
	r.want(`{"ticket":`)
	d.Ticket.read(r)
	d.Attempt = r.small(`,"attempt":`)
	if !r.end(`}`) {
		*d = Dispatch{}
		return false
	}
	return true
}

func (c Claim) appendQuick(b []byte) ([]byte, bool) {
	m := members{b, true}
	m.text(`{"job":`, c.Job)
	m.text(`,"worker":`, c.Worker)
	if c.Chunk != 0 {
		m.number(`,"chunk":`, int64(c.Chunk))
	}
	if c.Attempt != 0 {
		m.number(`,"attempt":`, int64(c.Attempt))
	}
	return append(m.b, '}'), m.ok
}

func (c *Claim) readQuick(r *reader) bool {
	*c = Claim{Job: r.text(`{"job":`), Worker: r.text(`,"worker":`)}
	if r.word(`,"chunk":`) {
		c.Chunk = r.small("")
	}
	if r.word(`,"attempt":`) {
		c.Attempt = r.small("")
	}
	if !r.end(`}`) {
		*c = Claim{}
		return false
	}
	return true
}

func (g Grant) appendQuick(b []byte) ([]byte, bool) {
	m := members{b, true}
	m.text(`{"verdict":`, string(g.Verdict))
	if g.Attempt != 0 {
		m.number(`,"attempt":`, int64(g.Attempt))
	}
	if g.BodyBytes != 0 {
		m.number(`,"body_bytes":`, g.BodyBytes)
	}
	if g.Chunks != 0 {
		m.number(`,"chunks":`, int64(g.Chunks))
	}
	return append(m.b, '}'), m.ok
}

func (g *Grant) readQuick(r *reader) bool {
	*g = Grant{Verdict: Verdict(r.text(`{"verdict":`))}
	if r.word(`,"attempt":`) {
		g.Attempt = r.small("")
	}
	if r.word(`,"body_bytes":`) {
		g.BodyBytes = r.number("")
	}
	if r.word(`,"chunks":`) {
		g.Chunks = r.small("")
	}
	if !r.end(`}`) {
		*g = Grant{}
		return false
	}
	return true
}

// rates and the other parts below are written inside of messages.
func (m *members) rates(r pricing.Rates) {
	m.text(`,"rates":{"version":`, r.Version)
	m.number(`,"input":`, int64(r.Input))
	m.number(`,"output":`, int64(r.Output))
	m.number(`,"cached_input":`, int64(r.CachedInput))
	m.b = append(m.b, '}')
}

func (r *reader) rates() pricing.Rates {
	p := pricing.Rates{
		Version: r.text(`,"rates":{"version":`), Input: money.Rate(r.number(`,"input":`)),
		Output: money.Rate(r.number(`,"output":`)), CachedInput: money.Rate(r.number(`,"cached_input":`)),
	}
	r.want(`}`)
	return p
}

func (m *members) tokens(name string, u llm.Usage) {
	m.number(name+`{"prompt":`, u.Prompt)
	if u.Cached != 0 {
		m.number(`,"cached":`, u.Cached)
	}
	m.number(`,"completion":`, u.Completion)
	if u.Reasoning != nil {
		m.number(`,"reasoning":`, *u.Reasoning)
	}
	m.b = append(m.b, '}')
}

func (r *reader) tokens(name string) llm.Usage {
	r.want(name)
	u := llm.Usage{Prompt: r.number(`{"prompt":`)}
	if r.word(`,"cached":`) {
		u.Cached = r.number("")
	}
	u.Completion = r.number(`,"completion":`)
	if r.word(`,"reasoning":`) {
		n := r.number("")
		u.Reasoning = &n
	}
	r.want(`}`)
	return u
}

func (h Hold) appendQuick(b []byte) ([]byte, bool) {
	m := members{b, true}
	m.text(`{"job":`, h.Job)
	m.text(`,"account":`, h.Account)
	m.text(`,"key":`, h.Key)
	m.text(`,"model":`, h.Model)
	m.number(`,"micro":`, int64(h.Micro))
	m.number(`,"floor_micro":`, int64(h.FloorMicro))
	m.rates(h.Rates)
	m.time(`,"expires":`, h.Expires)
	if h.Raise {
		m.b = append(m.b, `,"raise":true`...)
	}
	return append(m.b, '}'), m.ok
}

func (h *Hold) readQuick(r *reader) bool {
	*h = Hold{
		Job: r.text(`{"job":`), Account: r.text(`,"account":`), Key: r.text(`,"key":`), Model: r.text(`,"model":`),
		Micro: money.Micro(r.number(`,"micro":`)), FloorMicro: money.Micro(r.number(`,"floor_micro":`)),
		Rates: r.rates(), Expires: r.time(`,"expires":`), Raise: r.word(`,"raise":true`),
	}
	if !r.end(`}`) {
		*h = Hold{}
		return false
	}
	return true
}

func (a HoldAnswer) appendQuick(b []byte) ([]byte, bool) {
	if a.Code != "" || a.Message != "" || a.Micro == 0 || a.Open || a.Settled {
		return nil, false
	}
	m := members{b, true}
	m.number(`{"micro":`, int64(a.Micro))
	return append(m.b, '}'), m.ok
}

func (a *HoldAnswer) readQuick(r *reader) bool {
	*a = HoldAnswer{Code: fault.Code(""), Micro: money.Micro(r.number(`{"micro":`))}
	if !r.end(`}`) {
		*a = HoldAnswer{}
		return false
	}
	return true
}

func (e UsageEvent) appendQuick(b []byte) ([]byte, bool) {
	m := members{b, true}
	m.text(`{"specversion":`, e.SpecVersion)
	m.text(`,"id":`, e.ID)
	m.text(`,"source":`, e.Source)
	m.text(`,"type":`, e.Type)
	m.text(`,"subject":`, e.Subject)
	m.time(`,"time":`, e.Time)
	m.text(`,"datacontenttype":`, e.DataContentType)
	u := &e.Data
	m.text(`,"data":{"job":`, u.Job)
	m.text(`,"account":`, u.Account)
	m.text(`,"key":`, u.Key)
	m.text(`,"model":`, u.Model)
	m.text(`,"region":`, u.Region)
	if u.Worker != "" {
		m.text(`,"worker":`, u.Worker)
	}
	if u.Attempt != 0 {
		m.number(`,"attempt":`, int64(u.Attempt))
	}
	m.text(`,"route":`, u.Route)
	m.text(`,"outcome":`, string(u.Outcome))
	m.tokens(`,"tokens":`, u.Tokens)
	m.rates(u.Rates)
	m.number(`,"charged_micro":`, int64(u.ChargedMicro))
	m.number(`,"first_byte_ms":`, u.FirstByteMS)
	m.number(`,"total_ms":`, u.TotalMS)
	return append(m.b, "}}"...), m.ok
}

func (e *UsageEvent) readQuick(r *reader) bool {
	*e = UsageEvent{
		SpecVersion: r.text(`{"specversion":`), ID: r.text(`,"id":`), Source: r.text(`,"source":`),
		Type: r.text(`,"type":`), Subject: r.text(`,"subject":`), Time: r.time(`,"time":`),
		DataContentType: r.text(`,"datacontenttype":`),
	}
	u := &e.Data
	u.Job, u.Account, u.Key = r.text(`,"data":{"job":`), r.text(`,"account":`), r.text(`,"key":`)
	u.Model, u.Region = r.text(`,"model":`), r.text(`,"region":`)
	if r.word(`,"worker":`) {
		u.Worker = r.text("")
	}
	if r.word(`,"attempt":`) {
		u.Attempt = r.small("")
	}
	u.Route, u.Outcome = r.text(`,"route":`), pricing.Outcome(r.text(`,"outcome":`))
	u.Tokens, u.Rates = r.tokens(`,"tokens":`), r.rates()
	u.ChargedMicro = money.Micro(r.number(`,"charged_micro":`))
	u.FirstByteMS, u.TotalMS = r.number(`,"first_byte_ms":`), r.number(`,"total_ms":`)
	if !r.end(`}}`) {
		*e = UsageEvent{}
		return false
	}
	return true
}
