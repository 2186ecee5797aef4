package openaihttp

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/engy-ai/engy/pkg/llm"
)

// encode writes the body of a chat completion. The same request is the same
// bytes every time: prefix caches depend on it. Long texts are copied once.
func (q *quirks) encode(name string, req *llm.Request, rid string) []byte {
	b := make([]byte, 0, size(req))
	b = quote(append(b, `{"model":`...), name)
	b = q.messages(b, req)
	b = q.tools(b, req)
	b = append(b, `,"stream":true,"stream_options":{"include_usage":true`...)
	b = append(append(b, q.runningOptions...), '}')
	b = append(b, q.runningRequest...)
	b = strconv.AppendInt(append(b, `,"max_tokens":`...), outputTokens(req), 10)
	if req.Logprobs {
		b = append(b, `,"logprobs":true`...)
		if req.TopLogprobs > 0 {
			b = strconv.AppendInt(append(b, `,"top_logprobs":`...), int64(req.TopLogprobs), 10)
		}
	}
	b = extra(b, q.spoken(req), ownRequest)
	if rid != "" {
		b = quote(append(b, `,"rid":`...), rid)
	}
	return append(b, '}')
}

// outputTokens is never left to the engine, whose own default may be 16 tokens
// or the whole window.
func outputTokens(req *llm.Request) int64 {
	if req.MaxTokens > 0 {
		return req.MaxTokens
	}
	return OutputTokensUsual
}

// ownRequest names the members of a request that Extra may not set: those that
// are written from fields, and those that would change what they mean.
func ownRequest(name string) bool {
	switch name {
	case "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
		"tools", "tool_choice", "logprobs", "top_logprobs", "rid", "timings_per_token":
		return true
	}
	return barred(name)
}

// barred names members that no caller may hand to an engine: those that change
// how much is generated behind max_tokens, that reach into an engine's own
// state or queue, and that make it dial an address or load a file.
func barred(name string) bool {
	// Some engines read names in any case.
	name = strings.ToLower(name)
	switch name {
	case "n", "best_of", "use_beam_search", "n_predict", "num_predict", "max_new_tokens", "max_length", "n_cmpl",
		"prompt", "input_ids", "input_embeds", "prompt_embeds", "echo", "prompt_logprobs", "return_hidden_states",
		"request_id", "id_slot", "cache_prompt", "priority", "session_params", "session_id", "background", "user",
		"lora", "lora_path", "adapter", "custom_logit_processor", "logits_processors", "vllm_xargs",
		"kv_transfer_params", "ec_transfer_params", "data_parallel_rank", "options", "keep_alive", "template", "chat_template",
		"documents", "response_fields", "extra_body", "sampling_params", "dimensions", "post_sampling_probs",
		"lora_request", "routed_dp_rank", "model_path", "extra_key", "custom_params", "cache_salt", "truncate_prompt_tokens",
		"logprob_start_len", "top_logprobs_num", "return_logprob", "token_ids_logprob", "mm_processor_kwargs", "media_io_kwargs":
		return true
	}
	return media(name) || strings.HasPrefix(name, "bootstrap_") || strings.HasPrefix(name, "disagg_")
}

// media names members that carry pictures, sound and films past the parts that are
// checked; what stands in them may be an address.
func media(name string) bool {
	switch strings.ToLower(name) {
	case "images", "image", "image_url", "image_urls", "image_data", "video", "videos", "video_url", "video_data",
		"audio", "audios", "audio_url", "audio_data", "multi_modal_data", "multi_modal_uuids", "modalities":
		return true
	}
	return false
}

func ownMessage(name string) bool {
	if media(name) {
		return true
	}
	switch strings.ToLower(name) {
	case "role", "content", "name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content":
		return true
	}
	return false
}

func ownFunction(name string) bool {
	return name == "name" || name == "description" || name == "parameters"
}

func extra(b []byte, fields []llm.Field, own func(string) bool) []byte {
	for i := range fields {
		if f := &fields[i]; len(f.Value) > 0 && !own(f.Name) {
			b = quote(append(b, ','), f.Name)
			b = append(append(b, ':'), f.Value...)
		}
	}
	return b
}

func (q *quirks) messages(b []byte, req *llm.Request) []byte {
	b = append(b, `,"messages":[`...)
	var shown []llm.Part // media of tool results, which tool messages cannot hold
	items := paired(req.Items)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		it := &items[i]
		switch {
		case it.Role == llm.Tool && hasMedia(it.Parts):
			text := *it
			text.Parts = nil
			for _, p := range it.Parts {
				if p.Media != nil {
					shown = append(shown, p)
				} else {
					text.Parts = append(text.Parts, p)
				}
			}
			b = q.message(b, &text)
			continue
		case it.Role == llm.User && len(shown) > 0:
			whole := *it
			whole.Parts = slices.Concat(shown, it.Parts)
			shown, it = nil, &whole
		case it.Role != llm.Tool && len(shown) > 0:
			b = append(q.message(b, &llm.Item{Role: llm.User, Parts: shown}), ',')
			shown = nil
		}
		b = q.message(b, it)
	}
	if len(shown) > 0 {
		b = q.message(append(b, ','), &llm.Item{Role: llm.User, Parts: shown})
	}
	return append(b, ']')
}

func hasMedia(parts []llm.Part) bool {
	return slices.ContainsFunc(parts, func(p llm.Part) bool { return p.Media != nil })
}

func (q *quirks) message(b []byte, it *llm.Item) []byte {
	role := it.Role
	if role == llm.Developer {
		// Chat templates do not know the word.
		role = llm.System
	}
	b = quote(append(b, `{"role":`...), string(role))
	if it.Name != "" {
		b = quote(append(b, `,"name":`...), it.Name)
	}
	if it.CallID != "" {
		b = quote(append(b, `,"tool_call_id":`...), it.CallID)
	}
	if it.Reasoning != "" {
		b = append(append(append(b, `,"`...), q.thoughts...), `":`...)
		b = quote(b, it.Reasoning)
	}
	b = content(append(b, `,"content":`...), it.Parts)
	for i := range it.Calls {
		c := &it.Calls[i]
		if i == 0 {
			b = append(b, `,"tool_calls":[`...)
		} else {
			b = append(b, ',')
		}
		b = quote(append(b, `{"id":`...), c.ID)
		b = quote(append(b, `,"type":"function","function":{"name":`...), c.Name)
		args := c.Arguments
		if strings.TrimSpace(args) == "" {
			// Engines parse the arguments of earlier calls, and nothing is no JSON.
			args = "{}"
		}
		b = quote(append(b, `,"arguments":`...), arguments(args))
		b = append(b, "}}"...)
	}
	if len(it.Calls) > 0 {
		b = append(b, ']')
	}
	return append(extra(b, it.Extra, ownMessage), '}')
}

// content writes one text as a string, which every template can print, and
// anything else as a list.
func content(b []byte, parts []llm.Part) []byte {
	if len(parts) == 0 {
		return append(b, `""`...)
	}
	if len(parts) == 1 && parts[0].Media == nil {
		return append(b, parts[0].Text.Quoted()...)
	}
	b = append(b, '[')
	for i := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		p := &parts[i]
		switch {
		case p.Media == nil:
			b = append(append(b, `{"type":"text","text":`...), p.Text.Quoted()...)
			b = append(b, '}')
		case p.Media.Kind == "audio":
			b = append(append(b, `{"type":"input_audio","input_audio":{"data":"`...), plain(p.Media.Data)...)
			b = quote(append(b, `","format":`...), format(p.Media.Type))
			b = append(b, "}}"...)
		default:
			b = quote(append(b, `{"type":"image_url","image_url":{"url":`...), "data:"+p.Media.Type+";base64")
			// The data goes into the same string: base64 needs no escapes.
			b[len(b)-1] = ','
			b = append(append(b, plain(p.Media.Data)...), `"}}`...)
		}
	}
	return append(b, ']')
}

// plain gives what may stand in a JSON string as it is; nothing else is base64,
// and what is not base64 did not come from an edge.
func plain(data llm.Base64) llm.Base64 {
	if bytes.IndexByte(data, '"') >= 0 || bytes.IndexByte(data, '\\') >= 0 {
		return nil
	}
	return data
}

// format is the name that OpenAI has for a type of sound.
func format(mediaType string) string {
	_, sub, _ := strings.Cut(mediaType, "/")
	sub, _, _ = strings.Cut(sub, ";")
	switch sub = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(sub)), "x-"); sub {
	case "mpeg":
		return "mp3"
	case "wave":
		return "wav"
	}
	return sub
}

// tools writes the tools with their schemas byte for byte. An engine that does
// not read tool_choice gets no tools where none may be called.
func (q *quirks) tools(b []byte, req *llm.Request) []byte {
	if len(req.Tools) == 0 || !q.choice && req.Choice == "none" {
		return b
	}
	b = append(b, `,"tools":[`...)
	for i := range req.Tools {
		t := &req.Tools[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = quote(append(b, `{"type":"function","function":{"name":`...), t.Name)
		if t.Description != "" {
			b = quote(append(b, `,"description":`...), t.Description)
		}
		if len(t.Schema) > 0 {
			b = append(append(b, `,"parameters":`...), t.Schema...)
		}
		b = append(extra(b, t.Extra, ownFunction), "}}"...)
	}
	b = append(b, ']')
	if !q.choice || req.Choice == "" {
		return b
	}
	b = append(b, `,"tool_choice":`...)
	if req.Choice == "tool" {
		b = quote(append(b, `{"type":"function","function":{"name":`...), req.ChoiceName)
		return append(b, "}}"...)
	}
	return quote(b, req.Choice)
}

// size guesses how long the body gets, rather too long than too short: growing
// costs a copy.
func size(req *llm.Request) int {
	n := 1 << 10
	for i := range req.Items {
		it := &req.Items[i]
		n += quotedSize(it.Reasoning) + len(it.Name) + len(it.CallID) + 128 + extraSize(it.Extra)
		for j := range it.Parts {
			n += len(it.Parts[j].Text) + 64
			if m := it.Parts[j].Media; m != nil {
				n += len(m.Data) + len(m.Type) + 64
			}
		}
		for j := range it.Calls {
			n += quotedSize(it.Calls[j].Arguments) + len(it.Calls[j].Name) + len(it.Calls[j].ID) + 128
		}
	}
	for i := range req.Tools {
		t := &req.Tools[i]
		n += len(t.Schema) + quotedSize(t.Description) + len(t.Name) + 128 + extraSize(t.Extra)
	}
	return n + extraSize(req.Extra)
}

// quotedSize counts what is escaped in ordinary text and in code, and leaves
// some room for what is escaped elsewhere.
func quotedSize(text string) int {
	escapes := 0
	for _, c := range []string{"\n", `"`, `\`, "\t"} {
		escapes += strings.Count(text, c)
	}
	return len(text) + escapes + len(text)/64
}

func extraSize(fields []llm.Field) int {
	n := 0
	for i := range fields {
		n += len(fields[i].Name) + len(fields[i].Value) + 8
	}
	return n
}
