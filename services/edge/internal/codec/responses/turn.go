package responses

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

const (
	// unanswered is what a call gets that the caller left without an output, and
	// strange the name of a call of which only the output was sent. Chat templates
	// fail when one of the two is missing.
	unanswered = "(no output)"
	strange    = "unknown_tool"
)

// items reads the instructions and the input.
func items(req *llm.Request, in *request) error {
	if len(in.Input.items) == 0 {
		return fault.At("input", "input must be a text or hold at least one item")
	}
	if len(in.Input.items) > wire.ItemsMax {
		return fault.At("input", "input holds more than "+strconv.Itoa(wire.ItemsMax)+" items")
	}
	instructions, err := wire.Text("instructions", in.Instructions)
	if err != nil {
		return err
	}
	if !instructions.Empty() {
		req.Items = append(req.Items, llm.Item{Role: llm.System, Parts: []llm.Part{{Text: instructions}}})
	}
	h := history{waiting: map[string][]place{}}
	for i := range in.Input.items {
		if err := h.take(&in.Input.items[i], "input["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	before := len(req.Items)
	req.Items = h.appendItems(req.Items)
	if len(req.Items) == before {
		return fault.At("input", "input holds nothing that is for the model; earlier items are not stored")
	}
	return nil
}

// history turns a flat list of items into turns, of which one of the assistant
// holds what it thought, said and called before anybody else spoke.
type history struct {
	turns []turn
	// open tells that the last turn is the assistant's and may grow, said that the
	// last item was its message: the next one is another turn, as it is in chats.
	open, said bool
	// waiting finds the calls without an output by the ids of call and item.
	waiting map[string][]place
}

type turn struct {
	item     llm.Item
	thoughts []string
	// answers holds the outputs of the item's calls, nil when there is none yet.
	answers []*answered
}

type answered struct{ parts []llm.Part }

type place struct{ turn, call int }

func (h *history) take(it *item, field string) error {
	switch it.Type {
	case "":
		if it.Role != "" {
			return h.message(it, field)
		}
		if it.ID == "" {
			return fault.At(field+".type", field+".type is missing")
		}
		return nil // a reference without its type
	case "message":
		return h.message(it, field)
	case "reasoning":
		text, err := it.thoughts(field)
		if err == nil && text != "" {
			t := h.assistant()
			t.thoughts = append(t.thoughts, text)
		}
		h.said = false
		return err
	case "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call":
		return h.call(it, field)
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output",
		"apply_patch_call_output":
		return h.output(it, field)
	}
	// References, hosted tools and whatever else is kept elsewhere.
	return nil
}

func (h *history) message(it *item, field string) error {
	parts, err := it.Content.parts(field + ".content")
	if err != nil {
		return err
	}
	switch role := llm.Role(it.Role); role {
	case llm.System, llm.Developer, llm.User:
		if len(parts) == 0 {
			return fault.At(field+".content", field+".content is missing")
		}
		h.turns = append(h.turns, turn{item: llm.Item{Role: role, Parts: parts}})
		h.open, h.said = false, false
	case llm.Assistant:
		if h.said {
			h.open = false
		}
		t := h.assistant()
		t.item.Parts = append(t.item.Parts, parts...)
		h.said = true
	default:
		return fault.At(field+".role", field+".role must be system, developer, user or assistant")
	}
	return nil
}

// assistant gives the turn of the assistant that is open, or begins one.
func (h *history) assistant() *turn {
	if !h.open {
		h.turns = append(h.turns, turn{item: llm.Item{Role: llm.Assistant}})
		h.open = true
	}
	return &h.turns[len(h.turns)-1]
}

func (h *history) call(it *item, field string) error {
	id := it.CallID
	if id == "" {
		id = it.ID
	}
	if id == "" {
		return fault.At(field+".call_id", field+".call_id is missing")
	}
	name, arguments, err := it.called(field)
	if err != nil {
		return err
	}
	if err := wire.ToolName(field+".name", name); err != nil {
		return err
	}
	h.add(llm.Call{ID: id, Name: name, Arguments: arguments})
	at := place{len(h.turns) - 1, len(h.turns[len(h.turns)-1].item.Calls) - 1}
	h.waiting[id] = append(h.waiting[id], at)
	if it.ID != "" && it.ID != id {
		h.waiting[it.ID] = append(h.waiting[it.ID], at)
	}
	return nil
}

func (h *history) add(c llm.Call) {
	t := h.assistant()
	t.item.Calls = append(t.item.Calls, c)
	t.answers = append(t.answers, nil)
	h.said = false
}

// called gives a call as the model made it.
func (it *item) called(field string) (name, arguments string, err error) {
	switch it.Type {
	case "function_call":
		arguments, err = argumentsOf(field+".arguments", it.Arguments)
		return qualified(it.Namespace, it.Name), arguments, err
	case "custom_tool_call":
		if _, err := wire.Text(field+".input", it.Input); err != nil {
			return "", "", err
		}
		return qualified(it.Namespace, it.Name), `{"input":` + string(llm.Verbatim(it.Input).Quoted()) + `}`, nil
	}
	b, _ := builtinOf(it.Type)
	raw := it.Action
	if b.member == "operation" {
		raw = it.Operation
	}
	arguments, err = b.arguments(field+"."+b.member, raw)
	return b.name, arguments, err
}

// argumentsOf reads arguments: JSON in a text, or bare as some clients send them.
func argumentsOf(field string, raw jsontext.Value) (string, error) {
	switch raw.Kind() {
	case '{':
		return string(raw), nil
	case '"', 'n', 0:
		var s string
		if len(raw) > 0 && json.Unmarshal(raw, &s) != nil {
			return "", fault.At(field, field+" must be a string")
		}
		return s, nil
	}
	return "", fault.At(field, field+" must be a string")
}

func (h *history) output(it *item, field string) error {
	id := it.CallID
	if id == "" {
		id = it.ID
	}
	if id == "" {
		return fault.At(field+".call_id", field+".call_id is missing")
	}
	parts, err := it.said(field + ".output")
	if err != nil {
		return err
	}
	at, ok := h.waits(id)
	if !ok {
		h.open = false
		h.add(llm.Call{ID: id, Name: strange, Arguments: "{}"})
		at = place{len(h.turns) - 1, 0}
	}
	h.turns[at.turn].answers[at.call] = &answered{parts}
	h.open, h.said = false, false
	return nil
}

// waits finds a call with the id that has no output, the first of the newest turn
// that has one.
func (h *history) waits(id string) (place, bool) {
	list := h.waiting[id]
	for len(list) > 0 && h.answered(list[len(list)-1]) {
		list = list[:len(list)-1]
	}
	h.waiting[id] = list
	if len(list) == 0 {
		return place{}, false
	}
	found := list[len(list)-1]
	for n := len(list) - 1; n >= 0 && list[n].turn == found.turn; n-- {
		if !h.answered(list[n]) {
			found = list[n]
		}
	}
	return found, true
}

func (h *history) answered(at place) bool { return h.turns[at.turn].answers[at.call] != nil }

// said reads the output of a call. What is neither a text nor a list of parts is
// shown to the model as it is.
func (it *item) said(field string) ([]llm.Part, error) {
	raw := it.Output.raw
	if raw != nil && (raw.Kind() != '[' || it.Type == "shell_call_output") {
		return []llm.Part{{Text: llm.NewVerbatim(string(raw))}}, nil
	}
	parts, err := it.Output.parts(field)
	if it.Type == "apply_patch_call_output" && it.Status != "" {
		parts = append([]llm.Part{{Text: llm.NewVerbatim(it.Status + "\n")}}, parts...)
	}
	return parts, err
}

// appendItems lays the turns out. Thoughts that led to nothing are left out.
func (h *history) appendItems(items []llm.Item) []llm.Item {
	for i := range h.turns {
		t := &h.turns[i]
		if t.item.Role == llm.Assistant && len(t.item.Parts)+len(t.item.Calls) == 0 {
			continue
		}
		t.item.Reasoning = strings.Join(t.thoughts, "")
		items = append(items, t.item)
		for j, a := range t.answers {
			if a == nil {
				a = &answered{[]llm.Part{{Text: llm.NewVerbatim(unanswered)}}}
			}
			items = append(items, llm.Item{Role: llm.Tool, CallID: t.item.Calls[j].ID, Parts: a.parts})
		}
	}
	return items
}
