package openai

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

type message struct {
	Role             string         `json:"role"`
	Content          content        `json:"content"`
	Name             string         `json:"name"`
	ToolCallID       string         `json:"tool_call_id"`
	ToolCalls        []toolCall     `json:"tool_calls"`
	FunctionCall     *called        `json:"function_call"`
	Refusal          jsontext.Value `json:"refusal"`
	ReasoningContent *string        `json:"reasoning_content"`
	Reasoning        jsontext.Value `json:"reasoning"`
	Details          jsontext.Value `json:"reasoning_details"`
	Extra            jsontext.Value `json:",embed"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function called `json:"function"`
}

type called struct {
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

func items(req *llm.Request, messages []message) error {
	if len(messages) == 0 {
		return fault.At("messages", "messages must hold at least one message")
	}
	if len(messages) > wire.ItemsMax {
		return fault.At("messages", "messages holds more than "+strconv.Itoa(wire.ItemsMax)+" messages")
	}
	req.Items = make([]llm.Item, 0, len(messages))
	for i := range messages {
		if err := messages[i].appendTo(req, "messages["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

// appendTo adds a message, and before it the results of calls that its content holds.
func (m *message) appendTo(req *llm.Request, field string) error {
	it := llm.Item{Parts: m.Content.parts, Name: m.Name, CallID: m.ToolCallID, Calls: m.Content.calls}
	switch role := llm.Role(m.Role); role {
	case llm.System, llm.Developer, llm.User, llm.Assistant, llm.Tool:
		it.Role = role
	case "function":
		it.Role, it.CallID = llm.Tool, m.Name
	default:
		return fault.At(field+".role", field+".role must be system, developer, user, assistant or tool")
	}
	if it.Role == llm.User {
		if len(it.Parts)+len(m.Content.results) == 0 {
			return fault.At(field+".content", field+".content is missing")
		}
		req.Items = append(req.Items, m.Content.results...)
		if len(it.Parts) == 0 {
			return nil
		}
	}
	if len(it.Parts) == 0 && m.Refusal.Kind() == '"' {
		// What the assistant said instead of an answer is its answer.
		it.Parts = []llm.Part{{Text: llm.Verbatim(m.Refusal)}}
	}
	for j := range m.ToolCalls {
		call, err := m.ToolCalls[j].Function.internal(m.ToolCalls[j].ID)
		if err != nil {
			return err
		}
		it.Calls = append(it.Calls, call)
	}
	if m.FunctionCall != nil {
		// Messages of the role function name the call by the function's name.
		call, err := m.FunctionCall.internal(m.FunctionCall.Name)
		if err != nil {
			return err
		}
		it.Calls = append(it.Calls, call)
	}
	if it.Reasoning = m.thoughts(); it.Reasoning == "" {
		it.Reasoning = strings.Join(m.Content.thoughts, "")
	}
	var err error
	it.Extra, err = Extra(m.Extra, "refusal", "annotations", "audio", "function_call", "finish_reason", "reasoning_details")
	req.Items = append(req.Items, it)
	return err
}

// thoughts reads reasoning that a client sends back, in any of three spellings.
func (m *message) thoughts() string {
	if m.ReasoningContent != nil {
		return *m.ReasoningContent
	}
	var text string
	if m.Reasoning.Kind() == '"' && json.Unmarshal(m.Reasoning, &text) == nil {
		return text
	}
	var details []struct {
		Text    string `json:"text"`
		Summary string `json:"summary"`
	}
	if len(m.Details) > 0 && json.Unmarshal(m.Details, &details) == nil {
		var all strings.Builder
		for _, d := range details {
			all.WriteString(d.Text)
			all.WriteString(d.Summary)
		}
		return all.String()
	}
	return ""
}

func (c called) internal(id string) (llm.Call, error) {
	if err := wire.ToolName("messages.tool_calls.function.name", c.Name); err != nil {
		return llm.Call{}, err
	}
	call := llm.Call{ID: id, Name: c.Name}
	switch c.Arguments.Kind() {
	case '"':
		if err := json.Unmarshal(c.Arguments, &call.Arguments); err != nil {
			return llm.Call{}, wire.Refusal(err)
		}
	case '{':
		call.Arguments = string(c.Arguments)
	}
	return call, nil
}
