package admit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
)

func turn(role llm.Role, text string) llm.Item {
	return llm.Item{Role: role, Parts: []llm.Part{{Text: llm.NewVerbatim(text)}}}
}

func TestTheTurnsOfAConversationHaveOneAffinity(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("rule ", 2000)
	of := func(account, key string, items ...llm.Item) string {
		return affinity(&llm.Request{Model: "m", CacheKey: key, Items: items}, account, WarmTokens)
	}
	first := []llm.Item{turn(llm.System, long), turn(llm.User, "one")}
	a := of("a", "", first...)
	require.Len(t, a, 16)
	later := []llm.Item{first[0], first[1], turn(llm.Assistant, "two"), turn(llm.User, "three")}
	require.Equal(t, a, of("a", "", later...))
	require.NotEqual(t, a, of("b", "", first...), "nobody learns what others ask")
	require.NotEqual(t, a, of("a", "", first[0], turn(llm.User, "another")))
	require.NotEqual(t, a, of("a", "", turn(llm.System, long+"!"), first[1]))

	k := of("a", `"shelf"`, first...)
	require.NotEqual(t, a, k)
	require.Equal(t, k, of("a", `"shelf"`, turn(llm.User, "another")), "the caller knows better")
	require.NotEqual(t, k, of("b", `"shelf"`, first...))
	require.NotEqual(t, k, of("a", `"other"`, first...))
}

func TestAShortPromptHasNoAffinity(t *testing.T) {
	t.Parallel()
	req := &llm.Request{Model: "m", Items: []llm.Item{turn(llm.User, "hi")}}
	require.Empty(t, affinity(req, "a", WarmTokens-1))
	require.NotEmpty(t, affinity(req, "a", WarmTokens))
	req.CacheKey = `"shelf"`
	require.NotEmpty(t, affinity(req, "a", 1))
}

func TestOnlyABeginningIsLookedAt(t *testing.T) {
	t.Parallel()
	raw := func(r llm.Raw) string { return affinity(&llm.Request{Model: "m", Raw: &r}, "a", WarmTokens) }
	text := strings.Repeat("x", rawBytes)
	require.Equal(t, raw(llm.Raw{Text: llm.NewVerbatim(text)}), raw(llm.Raw{Text: llm.NewVerbatim(text + "y")}))
	require.NotEqual(t, raw(llm.Raw{Text: llm.NewVerbatim("x")}), raw(llm.Raw{Text: llm.NewVerbatim("y")}))
	require.NotEqual(t, raw(llm.Raw{IDs: llm.TokenIDs("[1,2]")}), raw(llm.Raw{IDs: llm.TokenIDs("[1,3]")}))

	chat := func(text string) string {
		return affinity(&llm.Request{Model: "m", Items: []llm.Item{turn(llm.User, text)}}, "a", WarmTokens)
	}
	long := strings.Repeat("x", beginningBytes)
	require.Equal(t, chat(long), chat(long+"y"))
	image := func(data string) string {
		part := llm.Part{Media: &llm.Media{Kind: "image", Data: llm.Base64(data)}}
		return affinity(&llm.Request{Model: "m", Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{part}}}}, "a", WarmTokens)
	}
	require.NotEqual(t, image("AAAA"), image("AAAB"))
}
