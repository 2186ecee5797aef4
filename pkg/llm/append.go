package llm

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendJSON writes the request as its fields' tags say. It is how requests travel:
// of one with megabytes of text or images there is one copy, made once. What
// engines alone read stays byte for byte.
func (r *Request) AppendJSON(b []byte) []byte {
	b = quoted(append(b, `{"model":`...), r.Model)
	b = append(b, `,"items":`...)
	if r.Items == nil {
		b = append(b, "[]"...)
	} else {
		b = list(b, r.Items, (*Item).append)
	}
	if r.Tools != nil {
		b = list(append(b, `,"tools":`...), r.Tools, (*ToolSpec).append)
	}
	if r.Raw != nil {
		b = r.Raw.append(append(b, `,"raw":`...))
	}
	b = text(b, `,"choice":`, r.Choice)
	b = text(b, `,"choice_name":`, r.ChoiceName)
	if r.MaxTokens != 0 {
		b = strconv.AppendInt(append(b, `,"max_tokens":`...), r.MaxTokens, 10)
	}
	if r.Logprobs {
		b = append(b, `,"logprobs":true`...)
	}
	if r.TopLogprobs != 0 {
		b = strconv.AppendInt(append(b, `,"top_logprobs":`...), int64(r.TopLogprobs), 10)
	}
	b = fields(b, r.Extra)
	if r.Stream {
		b = append(b, `,"stream":true`...)
	}
	return append(b, '}')
}

// SizeJSON is about how long AppendJSON's text gets, rather more than less.
func (r *Request) SizeJSON() int {
	n := 512 + fieldsSize(r.Extra)
	if r.Raw != nil {
		n += len(r.Raw.Text) + len(r.Raw.IDs) + 128
	}
	for i := range r.Items {
		it := &r.Items[i]
		n += 128 + len(it.Reasoning)*9/8 + len(it.CallID) + len(it.Name) + fieldsSize(it.Extra)
		for j := range it.Parts {
			n += 32 + len(it.Parts[j].Text)
			if m := it.Parts[j].Media; m != nil {
				n += 64 + len(m.Type) + len(m.Data)
			}
		}
		for j := range it.Calls {
			n += 64 + len(it.Calls[j].ID) + len(it.Calls[j].Name) + len(it.Calls[j].Arguments)*9/8
		}
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		n += 64 + len(t.Name) + len(t.Description)*9/8 + len(t.Schema) + fieldsSize(t.Extra)
	}
	return n
}

func fieldsSize(list []Field) int {
	n := 0
	for i := range list {
		n += 32 + len(list[i].Name) + len(list[i].Value)
	}
	return n
}

func quoted(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // what is not UTF-8 becomes U+FFFD
	return b
}

// text writes a member that is left out when it is empty.
func text(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return quoted(append(b, name...), s)
}

func list[T any](b []byte, all []T, one func(*T, []byte) []byte) []byte {
	b = append(b, '[')
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(&all[i], b)
	}
	return append(b, ']')
}

func fields(b []byte, all []Field) []byte {
	if all == nil {
		return b
	}
	return list(append(b, `,"extra":`...), all, func(f *Field, b []byte) []byte {
		b = quoted(append(b, `{"name":`...), f.Name)
		return append(value(append(b, `,"value":`...), f.Value), '}')
	})
}

func value(b, raw []byte) []byte {
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

func (it *Item) append(b []byte) []byte {
	b = quoted(append(b, `{"role":`...), string(it.Role))
	if it.Parts != nil {
		b = list(append(b, `,"parts":`...), it.Parts, (*Part).append)
	}
	b = text(b, `,"reasoning":`, it.Reasoning)
	if it.Calls != nil {
		b = list(append(b, `,"calls":`...), it.Calls, (*Call).append)
	}
	b = text(b, `,"call_id":`, it.CallID)
	b = text(b, `,"name":`, it.Name)
	return append(fields(b, it.Extra), '}')
}

func (p *Part) append(b []byte) []byte {
	b = append(b, '{')
	if p.Text != nil {
		b = append(append(b, `"text":`...), p.Text.Quoted()...)
	}
	if p.Media != nil {
		if p.Text != nil {
			b = append(b, ',')
		}
		b = quoted(append(b, `"media":{"kind":`...), p.Media.Kind)
		b = quoted(append(b, `,"type":`...), p.Media.Type)
		b = append(append(b, `,"data":"`...), p.Media.Data...)
		b = append(b, `"}`...)
	}
	return append(b, '}')
}

func (c *Call) append(b []byte) []byte {
	b = append(b, '{')
	if c.ID != "" {
		b = append(quoted(append(b, `"id":`...), c.ID), ',')
	}
	b = quoted(append(b, `"name":`...), c.Name)
	return append(text(b, `,"arguments":`, c.Arguments), '}')
}

func (t *ToolSpec) append(b []byte) []byte {
	b = quoted(append(b, `{"name":`...), t.Name)
	b = text(b, `,"description":`, t.Description)
	if t.Schema != nil {
		b = value(append(b, `,"schema":`...), t.Schema)
	}
	return append(fields(b, t.Extra), '}')
}

func (r *Raw) append(b []byte) []byte {
	start := len(b)
	member := func(name string) {
		if len(b) > start {
			b = append(b, ',')
		} else {
			b = append(b, '{')
		}
		b = append(b, name...)
	}
	if r.Text != nil {
		member(`"text":`)
		b = append(b, r.Text.Quoted()...)
	}
	if r.IDs != nil {
		member(`"ids":`)
		b = append(b, r.IDs...)
	}
	if r.Echo {
		member(`"echo":true`)
	}
	if r.ScoreFrom != nil {
		member(`"score_from":`)
		b = strconv.AppendInt(b, *r.ScoreFrom, 10)
	}
	if len(b) == start {
		b = append(b, '{')
	}
	return append(b, '}')
}
