package admit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/admit"
)

func raw(p llm.Raw) *llm.Request {
	return &llm.Request{Model: "glm-5.2", Spelling: "glm-5.2", Raw: &p, MaxTokens: 1}
}

func ids(n int) llm.TokenIDs {
	return llm.TokenIDs("[" + strings.TrimSuffix(strings.Repeat("7,", n), ",") + "]")
}

func at(n int64) *int64 { return &n }

// served decides where every feature is there but those that lack names.
func served(t *testing.T, req *llm.Request, lack ...string) (*admit.Admission, error) {
	t.Helper()
	cfg := config(t)
	live := cfg.Live
	cfg.Live = func(model string) (admit.Live, bool) {
		l, ok := live(model)
		l.Features = nil
		for _, f := range []string{"tools", "logprobs", "completions", "token_ids", "score"} {
			if !strings.Contains(strings.Join(lack, " "), f) {
				l.Features = append(l.Features, f)
			}
		}
		return l, ok
	}
	return cfg.Decide(req, bus.Principal{Account: "a", Key: "k"}, "job", time.Unix(1000, 0))
}

func TestWhatIsScoredHasABound(t *testing.T) {
	t.Parallel()
	text := func(chars int) llm.Verbatim { return llm.NewVerbatim(strings.Repeat("e", chars)) }
	for name, c := range map[string]struct {
		good, bad llm.Raw
		field     string
		quotes    []string
	}{
		"a span": {
			llm.Raw{IDs: ids(20_000), ScoreFrom: at(20_000 - 1024)},
			llm.Raw{IDs: ids(20_000), ScoreFrom: at(20_000 - 1025)},
			"logprob_start_len",
			[]string{"1025", "1024", "20000", "18975"},
		},
		"a span that is the whole prompt": {
			llm.Raw{IDs: ids(1024), ScoreFrom: at(0)},
			llm.Raw{IDs: ids(1025), ScoreFrom: at(0)},
			"logprob_start_len",
			[]string{"1025", "1024"},
		},
		"an offset the wrong way round": {
			llm.Raw{IDs: ids(14_900), ScoreFrom: at(14_900 - 64)},
			llm.Raw{IDs: ids(14_900), ScoreFrom: at(64)},
			"logprob_start_len",
			[]string{"14836", "14900"},
		},
		"a span of a string, however small": {
			llm.Raw{Text: text(4096), ScoreFrom: at(4000)},
			llm.Raw{Text: text(4097), ScoreFrom: at(4000)},
			"prompt",
			[]string{"about 1025", "1024", "token ids"},
		},
		"an echo of ids": {
			llm.Raw{IDs: ids(1024), Echo: true},
			llm.Raw{IDs: ids(1025), Echo: true},
			"echo",
			[]string{"1025", "1024", "logprob_start_len"},
		},
		"an echo of a string": {
			llm.Raw{Text: text(4096), Echo: true},
			llm.Raw{Text: text(4097), Echo: true},
			"echo",
			[]string{"about 1025", "1024", "logprob_start_len"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, logprobs := range []bool{false, true} {
				good, bad := raw(c.good), raw(c.bad)
				good.Logprobs, bad.Logprobs = logprobs, logprobs
				_, err := served(t, good)
				require.NoError(t, err)
				_, err = served(t, bad)
				require.True(t, fault.Is(err, fault.Invalid), "%v", err)
				require.Equal(t, c.field, fault.Of(err).Field)
				for _, q := range c.quotes {
					require.Contains(t, fault.Of(err).Message, q)
				}
			}
		})
	}
	_, err := served(t, raw(llm.Raw{IDs: ids(20_000)}))
	require.NoError(t, err, "a prompt that is not scored is as long as the window allows")
}

func TestTheBoundOfScoresIsTheModels(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	row, ok := cfg.Catalog.Find("glm-5.2")
	require.True(t, ok)
	row.ID, row.Aliases, row.ScoreMax = "small", nil, 3
	var err error
	cfg.Catalog, err = cfg.Catalog.With(row)
	require.NoError(t, err)
	rates, _ := cfg.Rates.Of("glm-5.2")
	cfg.Rates, err = cfg.Rates.With(pricing.Row{Model: "small", Unit: pricing.Token, Rates: rates})
	require.NoError(t, err)
	live := cfg.Live
	cfg.Live = func(model string) (admit.Live, bool) {
		l, ok := live(model)
		l.Features = []string{"completions", "token_ids", "score"}
		return l, ok
	}
	for from, fits := range map[int64]bool{2: true, 1: false} {
		req := raw(llm.Raw{IDs: ids(5), ScoreFrom: at(from)})
		req.Spelling = "small"
		_, err := cfg.Decide(req, bus.Principal{}, "job", time.Unix(1000, 0))
		require.Equal(t, fits, err == nil, "%v", err)
	}
}

func TestWhatNobodyCanDoIsTold(t *testing.T) {
	t.Parallel()
	for lack, says := range map[string]string{
		"score":       "no live worker of model 'glm-5.2' can score prompts",
		"token_ids":   "no live worker of model 'glm-5.2' takes token ids; send the prompt as a string",
		"completions": "no live worker of model 'glm-5.2' takes raw prompts",
	} {
		_, err := served(t, raw(llm.Raw{IDs: ids(3), ScoreFrom: at(1)}), lack)
		require.True(t, fault.Is(err, fault.Invalid))
		require.Equal(t, says, fault.Of(err).Message)
	}
	a, err := served(t, raw(llm.Raw{IDs: ids(3), ScoreFrom: at(1)}), "logprobs", "tools")
	require.NoError(t, err)
	require.Equal(t, []string{"completions", "token_ids", "score"}, a.Need.Features)
	// An echo of text needs nobody who scores, and a chat goes where it can.
	_, err = served(t, raw(llm.Raw{Text: llm.NewVerbatim("x"), Echo: true}), "score", "token_ids")
	require.NoError(t, err)
	chat := request("glm-5.2", 4)
	chat.Tools, chat.Logprobs = []llm.ToolSpec{{Name: "f"}}, true
	a, err = served(t, chat, "logprobs")
	require.NoError(t, err)
	require.Equal(t, []string{"tools"}, a.Need.Features)
}

func TestTokenIDsAreCountedAndStringsEstimated(t *testing.T) {
	t.Parallel()
	for want, req := range map[int64]*llm.Request{
		300: raw(llm.Raw{IDs: ids(300)}),
		116: raw(llm.Raw{Text: llm.NewVerbatim(strings.Repeat("é", 400))}),
	} {
		a, err := served(t, req)
		require.NoError(t, err)
		require.Equal(t, want, a.Ticket.PromptTokens)
		hold, err := money.Total(money.Term{Units: want, Rate: 680_000}, money.Term{Units: 1, Rate: 1_500_000})
		require.NoError(t, err)
		require.Equal(t, hold, a.Hold.Micro, "the prompt and one token")
	}
	_, err := served(t, raw(llm.Raw{IDs: ids(262_143)}))
	require.NoError(t, err)
	_, err = served(t, raw(llm.Raw{IDs: ids(262_144)}))
	require.True(t, fault.Is(err, fault.Overlong), "%v", err)
}

func TestNoTemplateIsSpokenTo(t *testing.T) {
	t.Parallel()
	req := raw(llm.Raw{Text: llm.NewVerbatim("x")})
	req.Effort, req.Thinking = "high", "disabled"
	_, err := served(t, req)
	require.NoError(t, err)
	require.Empty(t, req.Extra)
}

func TestTheWindowThatIsWanted(t *testing.T) {
	t.Parallel()
	window := func(largest int64, req *llm.Request) (int64, error) {
		cfg := config(t)
		live := cfg.Live
		cfg.Live = func(model string) (admit.Live, bool) {
			l, ok := live(model)
			l.Features = []string{"completions", "token_ids"}
			l.Window = func(admit.Need) (int64, bool) { return largest, true }
			return l, ok
		}
		a, err := cfg.Decide(req, bus.Principal{}, "job", time.Unix(1000, 0))
		if err != nil {
			return 0, err
		}
		return a.Need.Window, nil
	}
	chat := func(text string, limit int64) *llm.Request {
		req := request("glm-5.2", 0)
		req.Items[0].Parts[0].Text, req.MaxTokens = llm.NewVerbatim(text), limit
		return req
	}
	for name, c := range map[string]struct {
		largest int64
		req     *llm.Request
		want    int64
	}{
		"of ids, with what was asked for": {0, raw(llm.Raw{IDs: ids(100)}), 101},
		"of latin text":                   {0, chat(strings.Repeat("word ", 600), 50), 1000 + 50},
		"of other text":                   {0, chat(strings.Repeat("北", 600), 50), 600 + 50},
		"of short text":                   {0, chat("x", 50), 16 + 50},
		"without a limit":                 {0, chat("x", 0), 16},
		"at most the largest":             {40, chat("x", 50), 40},
		"an estimate is no refusal":       {10, chat("x", 50), 10},
	} {
		got, err := window(c.largest, c.req)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	_, err := window(101, raw(llm.Raw{IDs: ids(100)}))
	require.NoError(t, err)
	_, err = window(100, raw(llm.Raw{IDs: ids(100)}))
	require.True(t, fault.Is(err, fault.Overlong), "tokens that were counted are one")
	require.Equal(t, fault.TooLong(100, 100), fault.Of(err))
}

// A script with a token for each character may not get past the bound because
// others have one for four.
func TestAStringOfAnotherScriptIsNotTakenForAShortOne(t *testing.T) {
	t.Parallel()
	for _, char := range []string{"漢", "🌍", `é`} {
		_, err := served(t, raw(llm.Raw{Text: llm.NewVerbatim(strings.Repeat(char, 1024)), Echo: true}))
		require.NoError(t, err, char)
		_, err = served(t, raw(llm.Raw{Text: llm.NewVerbatim(strings.Repeat(char, 1025)), Echo: true}))
		require.True(t, fault.Is(err, fault.Invalid), char)
	}
	escaped := llm.Verbatim(`"` + strings.Repeat(`\u6f22`, 1025) + `"`)
	_, err := served(t, raw(llm.Raw{Text: escaped, Echo: true}))
	require.True(t, fault.Is(err, fault.Invalid), "however it is written")
}
