package openaihttp

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/llm"
)

// noOutput stands where a call was never answered.
const noOutput = "(no output)"

// paired gives the items such that every call is followed by its result and every
// result follows its call: chat templates fail on anything else, and clients send
// it when they were interrupted. What stands between comes behind; a result that
// nobody asked for is said by the user.
func paired(items []llm.Item) []llm.Item {
	if !slices.ContainsFunc(items, func(it llm.Item) bool { return it.Role == llm.Tool || len(it.Calls) > 0 }) {
		return items
	}
	out := make([]llm.Item, 0, len(items)+1)
	for i := 0; i < len(items); i++ {
		it := items[i]
		if it.Role == llm.Tool {
			it.Role, it.CallID, it.Name = llm.User, "", ""
		}
		out = append(out, it)
		if len(it.Calls) == 0 {
			continue
		}
		results, others, next := after(items, i+1)
		for _, c := range it.Calls {
			at := slices.IndexFunc(results, func(r llm.Item) bool { return r.CallID == c.ID })
			if at < 0 {
				out = append(out, llm.Item{Role: llm.Tool, CallID: c.ID, Parts: []llm.Part{{Text: llm.NewVerbatim(noOutput)}}})
				continue
			}
			out = append(out, results[at])
			results = slices.Delete(results, at, at+1)
		}
		for _, r := range results {
			r.Role, r.CallID, r.Name = llm.User, "", ""
			out = append(out, r)
		}
		out = append(out, others...)
		i = next - 1
	}
	return out
}

// after gives the results that follow a turn with calls, the instructions that
// stand among them, and where it goes on.
func after(items []llm.Item, from int) (results, others []llm.Item, next int) {
	next = from
	for j := from; j < len(items); j++ {
		switch items[j].Role {
		case llm.Tool:
			results = append(results, items[j])
			// Instructions count as among the results only when one follows them.
			others = append(others, items[next:j]...)
			next = j + 1
		case llm.System, llm.Developer:
		case llm.User, llm.Assistant:
			return results, others, next
		}
	}
	return results, others, next
}

// arguments writes those of an earlier call. Engines parse them and templates want
// an object, which a call that was cut short, or a model of its own mind, did not
// give.
func arguments(text string) string {
	switch v := jsontext.Value(text); {
	case !v.IsValid(jsontext.AllowDuplicateNames(true)):
		return `{"partial":` + string(quote(nil, text)) + `}`
	case v.Kind() != '{':
		return `{"value":` + text + `}`
	}
	return text
}
