package dialect_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/dialect"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// said gives the template's arguments for a request, "" for none.
func said(t *testing.T, family string, req llm.Request) string {
	t.Helper()
	require.NoError(t, dialect.Of(family).Say(&req))
	for _, f := range req.Extra {
		if f.Name == dialect.Kwargs {
			return string(f.Value)
		}
	}
	return ""
}

func kwargs(raw string) []llm.Field {
	return []llm.Field{{Name: "seed", Value: json.RawMessage("1")}, {Name: dialect.Kwargs, Value: json.RawMessage(raw)}}
}

// Every cell of the table: what each family hears of each tier, in any case.
func TestWhatEachModelHears(t *testing.T) {
	t.Parallel()
	const (
		enable = `{"enable_thinking":false}`
		think  = `{"thinking":false}`
	)
	word := func(w string) string { return `{"reasoning_effort":"` + w + `"}` }
	for family, row := range map[string][7]string{
		"glm-5.2":       {enable, enable, word("high"), word("high"), word("high"), word("max"), word("max")},
		"any other":     {enable, enable, word("high"), word("high"), word("high"), word("max"), word("max")},
		"glm-5.3":       {word("low"), word("low"), word("low"), word("high"), word("high"), word("max"), word("max")},
		"kimi-k3":       {think, think, word("low"), word("high"), word("high"), word("max"), word("max")},
		"deepseek-v4":   {enable, enable, word("low"), word("high"), word("high"), word("max"), word("max")},
		"deepseek-v4.1": {think, think, word("low"), word("high"), word("high"), word("max"), word("max")},
		"qwen3.8":       {enable, enable, word("low"), word("medium"), word("xhigh"), word("xhigh"), word("xhigh")},
	} {
		for i, spellings := range [7][]string{
			{"none", "NONE"}, {"minimal", "Minimal"}, {"low", "LOW"}, {"medium", "Medium"}, {"high", "hIgH"}, {"xhigh", "XHIGH"}, {"max", "MAX"},
		} {
			for _, tier := range spellings {
				require.Equal(t, row[i], said(t, family, llm.Request{Effort: tier}), "%s hears %s", family, tier)
			}
		}
		require.Empty(t, said(t, family, llm.Request{}), "%s: nothing asked, nothing said", family)
		require.Empty(t, said(t, family, llm.Request{Thinking: "enabled"}), "%s: the default level", family)
		require.Equal(t, row[0], said(t, family, llm.Request{Thinking: "disabled"}), family)
		require.Equal(t, row[0], said(t, family, llm.Request{Thinking: "disabled", Effort: "high"}), "%s: off is off", family)
		require.Equal(t, word("banana"), said(t, family, llm.Request{Effort: "banana"}), "%s: an unknown word goes on as it is", family)
		require.Equal(t, word("Ünknown"), said(t, family, llm.Request{Effort: "Ünknown"}), family)
	}
}

func TestTheCallersOwnSwitchWins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ family, effort, args, want string }{
		"on against none":                   {"glm-5.2", "none", `{"enable_thinking":true}`, `{"enable_thinking":true}`},
		"off against high":                  {"glm-5.2", "high", `{"enable_thinking":false}`, `{"enable_thinking":false}`},
		"off alone":                         {"qwen3.8", "", `{"enable_thinking":false}`, `{"enable_thinking":false}`},
		"on with a level":                   {"qwen3.8", "high", `{"enable_thinking":true}`, `{"enable_thinking":true,"reasoning_effort":"xhigh"}`},
		"renamed for kimi":                  {"kimi-k3", "none", `{"enable_thinking":true}`, `{"thinking":true}`},
		"renamed in its place":              {"deepseek-v4.1", "", `{"a":1,"enable_thinking":false,"b":{"y":1,"x":2}}`, `{"a":1,"thinking":false,"b":{"y":1,"x":2}}`},
		"both, the family's stays":          {"kimi-k3", "", `{"enable_thinking":true,"thinking":false}`, `{"thinking":false}`},
		"another's switch is let be":        {"deepseek-v4", "none", `{"thinking":true}`, `{"thinking":true,"enable_thinking":false}`},
		"glm-5.3 has none: off is low":      {"glm-5.3", "", `{"enable_thinking":false}`, `{"reasoning_effort":"low"}`},
		"glm-5.3 has none: off by thinking": {"glm-5.3", "max", `{"thinking":false}`, `{"reasoning_effort":"low"}`},
		"glm-5.3 has none: on is dropped":   {"glm-5.3", "", `{"enable_thinking":true,"a":1}`, `{"a":1}`},
		"glm-5.3 on against none":           {"glm-5.3", "none", `{"enable_thinking":true}`, `{"reasoning_effort":"low"}`},
		"glm-5.3 never hears none":          {"glm-5.3", "high", `{"reasoning_effort":"none"}`, `{"reasoning_effort":"low"}`},
		"the caller's own word":             {"glm-5.2", "low", `{"reasoning_effort":"medium"}`, `{"reasoning_effort":"medium"}`},
		"the caller's own word against off": {"kimi-k3", "none", `{"reasoning_effort":"low"}`, `{"reasoning_effort":"low"}`},
		"a switch that is null is none":     {"glm-5.2", "none", `{"enable_thinking":null}`, `{"enable_thinking":false}`},
		"nothing asked":                     {"glm-5.2", "", `{"b":1,"a":[1E2]}`, `{"b":1,"a":[1E2]}`},
		"a template of the caller's own":    {"glm-5.2", "", `{"a":1,"chat_template":"{%for%}","Tokenize":false,"return_tensors":"pt","messages":[1]}`, `{"a":1}`},
		"nothing but that":                  {"glm-5.2", "", `{"chat_template":"x"}`, ``},
		"null":                              {"glm-5.2", "low", `null`, `{"reasoning_effort":"high"}`},
	} {
		require.Equal(t, c.want, said(t, c.family, llm.Request{Effort: c.effort, Extra: kwargs(c.args)}), name)
	}
}

func TestTheCallersRequestIsNotWrittenInto(t *testing.T) {
	t.Parallel()
	extra := kwargs(`{"enable_thinking":true}`)
	req := llm.Request{Effort: "low", Extra: extra}
	require.NoError(t, dialect.Of("kimi-k3").Say(&req))
	require.Equal(t, kwargs(`{"enable_thinking":true}`), extra)
	require.Equal(t, "seed", req.Extra[0].Name)
}

func TestArgumentsThatAreNoObjectAreRefused(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`[]`, `"x"`, `1`, `true`} {
		req := llm.Request{Extra: kwargs(raw)}
		err := dialect.Of("glm-5.2").Say(&req)
		require.True(t, fault.Is(err, fault.Invalid), raw)
		require.Equal(t, dialect.Kwargs, fault.Of(err).Field)
	}
}

func TestModelsAreOfTheirCatalogueFamily(t *testing.T) {
	t.Parallel()
	models, err := catalog.Default()
	require.NoError(t, err)
	for _, m := range models.Models() {
		if m.Kind == catalog.Text {
			require.Equal(t, m.Family, dialect.OfModel(m.ID).Name, m.ID)
			require.Equal(t, m.Family, dialect.Of(m.Family).Name, "the family has a row")
		}
	}
	require.Equal(t, "deepseek-v4.1", dialect.OfModel("DeepSeek-V4.1-Flash").Name)
	require.Equal(t, "deepseek-v4", dialect.OfModel("deepseek-v4-pro").Name)
	require.Equal(t, "glm-5.2", dialect.OfModel("llama-4").Name)
	require.Equal(t, "glm-5.2", dialect.OfModel("qwen3.6-35b-a3b").Name)
}
