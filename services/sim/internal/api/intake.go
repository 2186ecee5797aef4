package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
	"github.com/engy-ai/engy/services/sim/internal/wire"
)

// completionTokens is how long a plain completion is when it does not say,
// the same in every engine of this kind.
const completionTokens = 16

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	var req wire.Chat
	body, f := s.read(w, r, &req)
	if f != nil {
		s.register.Refused()
		s.fail(w, f)
		return
	}
	if req.MaxCompletionTokens != nil {
		req.MaxTokens = req.MaxCompletionTokens
	}
	j := &job{chat: true, common: &req.Common, user: lastUser(req.Messages), promptTop: -1}
	j.logprobs, j.top = req.Logprobs, req.TopLogprobs
	s.run(w, r, j, func(j *job) ([]tokenizer.ID, script.Ask, *wire.Failure) {
		s.keep(j, body)
		return s.chatAsk(j, &req)
	})
}

func (s *Server) completion(w http.ResponseWriter, r *http.Request) {
	var req wire.Completion
	body, f := s.read(w, r, &req)
	var ids []tokenizer.ID
	if f == nil {
		ids, f = s.completionPrompt(&req)
	}
	if f != nil {
		s.register.Refused()
		s.fail(w, f)
		return
	}
	if req.MaxTokens == nil {
		usual := completionTokens
		req.MaxTokens = &usual
	}
	j := &job{common: &req.Common, user: req.Prompt.Text, promptTop: -1, tokenIDs: req.ReturnTokenIDs}
	if req.Logprobs != nil {
		j.logprobs, j.top = true, *req.Logprobs
	}
	if req.PromptLogprobs != nil {
		j.promptTop = *req.PromptLogprobs
	}
	if req.Echo {
		j.echo = req.Prompt.Text
	}
	s.run(w, r, j, func(j *job) ([]tokenizer.ID, script.Ask, *wire.Failure) {
		s.keep(j, body)
		if ids == nil {
			ids = tokenizer.Encode(nil, req.Prompt.Text)
		}
		if req.Echo && j.logprobs || j.promptTop >= 0 {
			j.scoreFrom = 0
		}
		return ids, script.Ask{}, nil
	})
}

// completionPrompt reads the prompt of a plain completion, and what is to be
// scored of it.
func (s *Server) completionPrompt(req *wire.Completion) ([]tokenizer.ID, *wire.Failure) {
	if k := req.PromptLogprobs; k != nil && (*k < 0 || *k > s.opt.TopLogprobsMax) {
		return nil, wire.Wrong("prompt_logprobs", "prompt_logprobs is from 0 to %d, not %d", s.opt.TopLogprobsMax, *k)
	}
	if req.PromptLogprobs != nil && req.Stream {
		return nil, wire.Wrong("prompt_logprobs", "prompt_logprobs are not available when stream is true")
	}
	return readPrompt(&req.Prompt)
}

// readPrompt reads a prompt of ids and gives it the text that marks are looked
// for in. A prompt of text is tokenised later, once it has a slot.
func readPrompt(p *wire.Prompt) ([]tokenizer.ID, *wire.Failure) {
	switch {
	case !p.Given:
		return nil, wire.Wrong("prompt", "prompt is missing")
	case !p.IsIDs:
		return nil, nil
	}
	ids := make([]tokenizer.ID, len(p.IDs))
	for i, id := range p.IDs {
		ids[i] = tokenizer.ID(id)
	}
	text, bad := tokenizer.Decode(ids)
	if bad >= 0 {
		return nil, wire.Wrong("prompt", "token id %d at position %d is out of the vocabulary", ids[bad], bad)
	}
	p.Text = text
	return ids, nil
}

// keep stores the body when a directive asks for it.
func (s *Server) keep(j *job, body []byte) {
	if j.set.Record != "" {
		s.register.Keep(j.set.Record, body)
	}
}

// chatAsk writes the prompt of a chat and decides what kind of answer it gets.
func (s *Server) chatAsk(j *job, req *wire.Chat) ([]tokenizer.ID, script.Ask, *wire.Failure) {
	var ask script.Ask
	if req.TopLogprobs > 0 && !req.Logprobs {
		return nil, ask, wire.Wrong("top_logprobs", "top_logprobs needs logprobs to be true")
	}
	functions, err := wire.Functions(req.Tools)
	if err != nil {
		return nil, ask, wire.Wrong("tools", "%s", err)
	}
	if len(functions) > s.opt.ToolsMax {
		return nil, ask, wire.Wrong("tools", "at most %d tools are allowed, not %d", s.opt.ToolsMax, len(functions))
	}
	for _, f := range functions {
		ask.Tools = append(ask.Tools, script.Tool{Name: f.Name, Schema: f.Parameters})
	}
	ask.Think = s.think(j.set, req)
	ask.Results = strings.ToValidUTF8(strings.Join(results(req.Messages), "\n"), "")
	var f *wire.Failure
	if ask.CallTools, ask.FirstTool, f = chooseTools(j, req, ask.Tools); f != nil {
		return nil, ask, f
	}
	switch req.ResponseFormat.Type {
	case "json_schema":
		ask.Schema = req.ResponseFormat.JSONSchema.Schema
		fallthrough
	case "json_object":
		if ask.Schema == nil {
			ask.Schema = script.Schema{"type": "object", "properties": map[string]any{"answer": map[string]any{"type": "string"}}}
		}
	}
	chat, f := template(req.Messages, req.Tools)
	if f != nil {
		return nil, ask, f
	}
	chat.Think = tokenizer.ThinkOff
	if ask.Think > 0 {
		chat.Think = tokenizer.ThinkOn
	}
	return chat.Prompt(), ask, nil
}

// template reduces messages to what the chat template writes.
func template(messages []wire.Message, tools jsontext.Value) (tokenizer.Chat, *wire.Failure) {
	chat := tokenizer.Chat{Messages: make([]tokenizer.Message, 0, len(messages))}
	if len(messages) == 0 {
		return chat, wire.Wrong("messages", "messages is empty")
	}
	if len(tools) > 0 && tools.Kind() != 'n' {
		chat.Tools = string(tools)
	}
	for i, m := range messages {
		t := tokenizer.Message{Texts: m.Content.Texts, MediaParts: m.Content.MediaParts}
		switch m.Role {
		case "system", "developer":
			t.Opens = tokenizer.System
		case "user":
			t.Opens = tokenizer.User
		case "assistant":
			t.Opens = tokenizer.Assistant
		case "tool", "function":
			t.Opens = tokenizer.ToolResult
		default:
			return chat, wire.Wrong("messages", "message %d has the unknown role %q", i, m.Role)
		}
		t.Texts = slices.Concat([]string{m.Name, m.ToolCallID, m.ReasoningContent, m.Reasoning}, t.Texts)
		if len(m.ToolCalls) > 0 && m.ToolCalls.Kind() != 'n' {
			t.Texts = append(t.Texts, string(m.ToolCalls))
		}
		chat.Messages = append(chat.Messages, t)
	}
	return chat, nil
}

// lastUser is the text that directives and wishes are looked for in. A turn of
// media alone has none: it shows what a tool has found.
func lastUser(messages []wire.Message) string {
	for _, m := range slices.Backward(messages) {
		if m.Role == "user" && !mute(m) {
			return strings.Join(m.Content.Texts, "\n")
		}
	}
	return ""
}

// mute tells whether a turn holds media and no text.
func mute(m wire.Message) bool { return m.Content.MediaParts > 0 && len(m.Content.Texts) == 0 }

// results gives what tools have said since the last answer. What a client tells
// the model beside them in the system's name, and pictures that cannot stand in a
// tool's message, do not count as a new question.
func results(messages []wire.Message) []string {
	var texts []string
	for _, m := range slices.Backward(messages) {
		switch {
		case m.Role == "system" || m.Role == "developer":
		case m.Role == "tool" || m.Role == "function":
			texts = append(texts, strings.Join(m.Content.Texts, "\n"))
		case m.Role == "user" && mute(m):
		default:
			slices.Reverse(texts)
			return texts
		}
	}
	slices.Reverse(texts)
	return texts
}

// think decides how many reasoning tokens come first. A directive wins, then the
// template's switches, then effort none, then the configuration. Effort only
// changes the length of reasoning that is on, as in most templates.
func (s *Server) think(set script.Settings, req *wire.Chat) int {
	if set.Think != script.Unset {
		return set.Think
	}
	kw := req.TemplateKwargs
	effort := word(req.ReasoningEffort)
	if given := word(kw.ReasoningEffort); given != "" {
		effort = given
	}
	on := s.opt.Think && effort != "none"
	if kw.EnableThinking != nil || kw.Thinking != nil {
		on = kw.EnableThinking != nil && *kw.EnableThinking || kw.Thinking != nil && *kw.Thinking
	}
	if !on {
		return 0
	}
	usual := s.opt.ThinkTokens
	switch effort {
	case "minimal":
		return max(1, usual/4)
	case "low":
		return max(1, usual/2)
	case "high":
		return usual * 2
	case "xhigh":
		return usual * 3
	case "max":
		return usual * 4
	}
	if n, err := strconv.Atoi(effort); err == nil && n >= 0 && n <= 100 {
		return n
	}
	return usual
}

// word reads an effort, which is a string or a number.
func word(v jsontext.Value) string {
	var text string
	if json.Unmarshal(v, &text) == nil {
		return text
	}
	if v.Kind() == '0' {
		return string(v)
	}
	return ""
}

// chooseTools decides how many calls the answer makes and which tool is first.
func chooseTools(j *job, req *wire.Chat, tools []script.Tool) (count, first int, f *wire.Failure) {
	set, choice := j.set, req.ToolChoice
	index := func(name string) int {
		return slices.IndexFunc(tools, func(t script.Tool) bool { return t.Name == name })
	}
	wish, first := mentioned(j.user, tools)
	switch {
	case choice.Name != "":
		if first = index(choice.Name); first < 0 {
			return 0, 0, wire.Wrong("tool_choice", "tool_choice names %q, which is not among the tools", choice.Name)
		}
		count = 1
	case choice.Mode == "none":
		return 0, 0, nil
	case choice.Mode == "required":
		if len(tools) == 0 {
			return 0, 0, wire.Wrong("tool_choice", "tool_choice is required but there are no tools")
		}
		count = max(1, wish)
	case len(results(req.Messages)) > 0:
		// The result of a call is answered with text, or agents would never end.
		return 0, 0, nil
	default:
		count = wish
	}
	if set.Tool != "" && choice.Name == "" {
		first, count = index(set.Tool), max(1, count)
	}
	if set.Calls > 0 && (len(tools) > 0 || set.Tool != "") {
		count = set.Calls
	}
	if req.ParallelToolCalls != nil && !*req.ParallelToolCalls {
		count = min(count, 1)
	}
	return count, first, nil
}

// mentioned tells whether a text asks for tools: by the name of one, or in
// plain words. A long text is only looked at where wishes are: at its end.
func mentioned(text string, tools []script.Tool) (count, first int) {
	const look = 64 << 10
	if len(tools) == 0 {
		return 0, 0
	}
	lower := strings.ToLower(text[max(0, len(text)-look):])
	for i, t := range tools {
		if strings.Contains(lower, strings.ToLower(t.Name)) {
			count, first = 1, i
			break
		}
	}
	words := strings.FieldsFunc(lower, func(r rune) bool { return r < 'a' || r > 'z' })
	switch {
	case strings.Contains(lower, "both tools"):
		return min(2, len(tools)), 0
	case count == 0 && (strings.Contains(lower, "use the tool") || slices.Contains(words, "call")):
		count = 1
	}
	return count, first
}
