package admit_test

import (
	"encoding/base64"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/money"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/services/edge/internal/admit"
)

func config(t *testing.T) admit.Config {
	t.Helper()
	models, err := catalog.Default()
	require.NoError(t, err)
	rates, err := pricing.Default()
	require.NoError(t, err)
	return admit.Config{
		Catalog: models, Rates: rates, Deadline: time.Minute, HoldLease: time.Minute,
		Live: func(model string) (admit.Live, bool) {
			return admit.Live{
				Modalities: []string{"text"},
				Features:   []string{"tools"},
				Window:     func(n admit.Need) (int64, bool) { return 0, meets(n) },
				Place:      func(n admit.Need) (string, string, bool) { return "eu", "", meets(n) },
			}, model != "glm-5.3"
		},
	}
}

// meets tells whether the one worker there is may serve.
func meets(n admit.Need) bool {
	return n.Allowed("eu") && n.Class != bus.Proof && n.Class != bus.ZDRProof
}

func request(model string, chars int) *llm.Request {
	return &llm.Request{
		Model: model, Spelling: model,
		Items: []llm.Item{{Role: llm.User, Parts: []llm.Part{{Text: llm.NewVerbatim(strings.Repeat("é", chars))}}}},
	}
}

func decide(t *testing.T, req *llm.Request) (*admit.Admission, error) {
	t.Helper()
	return config(t).Decide(req, bus.Principal{Account: "a", Key: "k"}, "job", time.Unix(1000, 0))
}

func TestBareModel(t *testing.T) {
	t.Parallel()
	for spelling, bare := range map[string]string{
		"glm-5.2": "glm-5.2", "engy/glm-5.2": "glm-5.2", "x/glm-5.2[1m]": "glm-5.2", "kimi-k3[1m]": "kimi-k3",
		"a/b/glm-5.2": "a/b/glm-5.2", "a/b/../glm-5.2": "a/b/../glm-5.2", "/glm-5.2": "glm-5.2", "": "",
	} {
		require.Equal(t, bare, admit.BareModel(spelling))
	}
}

func TestTheHoldIsTheCeiling(t *testing.T) {
	t.Parallel()
	req := request("engy/glm-5.2", 400) // 100 + 16 tokens by the estimate: characters, not bytes
	req.MaxTokens = 50
	a, err := decide(t, req)
	require.NoError(t, err)
	want, err := money.Total(money.Term{Units: 116, Rate: 680_000}, money.Term{Units: 50, Rate: 1_500_000})
	require.NoError(t, err)
	require.Equal(t, want, a.Hold.Micro)
	require.Equal(t, want, a.Hold.FloorMicro, "a limit that the caller set is not stretched")
	require.Equal(t, int64(116), a.Ticket.PromptTokens)
	require.Equal(t, time.Unix(1060, 0), a.Ticket.Deadline)
	require.Equal(t, time.Unix(1060, 0), a.Hold.Expires)
	require.Equal(t, "glm-5.2", a.Request.Model)
}

func TestTheOutputLimit(t *testing.T) {
	t.Parallel()
	t.Run("absent means the model's own, down to a floor", func(t *testing.T) {
		t.Parallel()
		a, err := decide(t, request("glm-5.2", 4))
		require.NoError(t, err)
		require.Equal(t, int64(65_536), a.Request.MaxTokens)
		require.Less(t, a.Hold.FloorMicro, a.Hold.Micro)
		a.Stretch(a.Hold.FloorMicro)
		require.InDelta(t, 256, a.Request.MaxTokens, 1)
		ceiling, err := pricing.Ceiling(a.Rates, a.Ticket.PromptTokens, a.Request.MaxTokens)
		require.NoError(t, err)
		require.LessOrEqual(t, ceiling, a.Hold.FloorMicro)
	})
	t.Run("huge ones are lowered before anything is multiplied", func(t *testing.T) {
		t.Parallel()
		req := request("glm-5.2", 4)
		req.MaxTokens = math.MaxInt64
		a, err := decide(t, req)
		require.NoError(t, err)
		require.Equal(t, int64(65_536), a.Request.MaxTokens)
	})
	t.Run("what the window leaves", func(t *testing.T) {
		t.Parallel()
		a, err := decide(t, request("glm-5.2", (262_144-16-100)*4))
		require.NoError(t, err)
		require.Equal(t, int64(100), a.Request.MaxTokens)
	})
}

func TestThePromptAtTheWindow(t *testing.T) {
	t.Parallel()
	_, err := decide(t, request("glm-5.2", (262_144-16-1)*4))
	require.NoError(t, err)
	for _, chars := range []int{(262_144 - 16) * 4, 262_144 * 4, 3_000_000} {
		_, err = decide(t, request("glm-5.2", chars))
		require.True(t, fault.Is(err, fault.Overlong))
		require.Contains(t, err.Error(), "262144")
	}
}

func TestAModelThatIsAwayForAMomentIsBusy(t *testing.T) {
	t.Parallel()
	c := config(t)
	c.Live = func(string) (admit.Live, bool) { return admit.Live{}, false }
	for away, want := range map[bool]fault.Code{true: fault.Busy, false: fault.NotFound} {
		c.Away = func(string) bool { return away }
		_, err := c.Decide(request("glm-5.2", 10), bus.Principal{Account: "a", Key: "k"}, "j", time.Now())
		require.True(t, fault.Is(err, want), err)
	}
}

func TestWhoIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*llm.Request)
		code   fault.Code
	}{
		"an unknown model":           {func(r *llm.Request) { r.Spelling = "none" }, fault.NotFound},
		"a wildcard":                 {func(r *llm.Request) { r.Spelling = ">" }, fault.NotFound},
		"a model nobody serves":      {func(r *llm.Request) { r.Spelling = "glm-5.3" }, fault.NotFound},
		"a video model":              {func(r *llm.Request) { r.Spelling = "MiniMax-H3" }, fault.NotFound},
		"an image for a text model":  {func(r *llm.Request) { r.Items[0].Parts[0] = llm.Part{Media: &llm.Media{Kind: "image"}} }, fault.Invalid},
		"an unknown region":          {func(r *llm.Request) { r.Policy.RegionOnly = []string{"EU"} }, fault.Invalid},
		"an unknown excluded region": {func(r *llm.Request) { r.Policy.RegionExclude = []string{"eu.>"} }, fault.Invalid},
		"a region without workers":   {func(r *llm.Request) { r.Policy.RegionOnly = []string{"apac"} }, fault.NoWorker},
		"regions that cancel out": {func(r *llm.Request) {
			r.Policy.RegionOnly, r.Policy.RegionExclude = []string{"eu"}, []string{"eu"}
		}, fault.NoWorker},
		"a proof that nobody gives": {func(r *llm.Request) { r.Policy.Proof = true }, fault.NoWorker},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request("glm-5.2", 4)
			c.change(req)
			_, err := decide(t, req)
			require.True(t, fault.Is(err, c.code), "%v", err)
		})
	}
}

func TestMediaAreBoundedInNumberAndBytes(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	live := cfg.Live
	cfg.Live = func(model string) (admit.Live, bool) {
		l, ok := live(model)
		l.Modalities = []string{"text", "image", "audio"}
		return l, ok
	}
	image := func(n int) llm.Part {
		return llm.Part{Media: &llm.Media{Kind: "image", Type: "image/png", Data: llm.Base64(base64.StdEncoding.EncodeToString(make([]byte, n)))}}
	}
	sound := llm.Part{Media: &llm.Media{Kind: "audio", Type: "audio/wav", Data: llm.Base64("AA==")}}
	for name, c := range map[string]struct {
		parts []llm.Part
		fits  bool
	}{
		"as many as may be":     {append(slices.Repeat([]llm.Part{image(3)}, 15), sound), true},
		"one more":              {append(slices.Repeat([]llm.Part{image(3)}, 16), sound), false},
		"as large as may be":    {[]llm.Part{image(20<<20 - 2), image(1), sound}, true},
		"one byte more":         {[]llm.Part{image(20<<20 - 2), image(2), sound}, false},
		"one byte more, in one": {[]llm.Part{image(20<<20 + 1)}, false},
	} {
		req := request("kimi-k3", 4)
		req.Items[0].Parts = append(req.Items[0].Parts, c.parts...)
		_, err := cfg.Decide(req, bus.Principal{Account: "a", Key: "k"}, "job", time.Unix(1000, 0))
		require.Equal(t, c.fits, err == nil, "%s: %v", name, err)
		require.True(t, c.fits || fault.Is(err, fault.TooLarge), name)
	}
}

func TestAnEmptyListOfRegionsIsNoConstraint(t *testing.T) {
	t.Parallel()
	req := request("glm-5.2", 4)
	req.Policy.RegionOnly, req.Policy.RegionExclude = []string{}, []string{}
	a, err := decide(t, req)
	require.NoError(t, err)
	require.True(t, a.Need.Allowed("cn"))
}

func TestAKeysModelsAreKept(t *testing.T) {
	t.Parallel()
	for models, code := range map[string]fault.Code{"kimi-k3": fault.Forbidden, "glm-5.2": ""} {
		_, err := config(t).Decide(request("glm-5.2", 4), bus.Principal{Models: []string{models}}, "job", time.Now())
		require.Equal(t, code != "", err != nil)
		if err != nil {
			require.True(t, fault.Is(err, code))
		}
	}
}

func TestAModelsNameIsShownShortAndInOneLine(t *testing.T) {
	t.Parallel()
	_, err := decide(t, request("bad\r\nname"+strings.Repeat("x", 10_000), 4))
	require.Less(t, len(err.Error()), 200)
	require.NotContains(t, err.Error(), "\n")
}

func TestMediaOfTheAssistantIsLeftOut(t *testing.T) {
	t.Parallel()
	req := request("glm-5.2", 4)
	req.Items = append(req.Items, llm.Item{Role: llm.Assistant, Parts: []llm.Part{
		{Media: &llm.Media{Kind: "image", Type: "image/png", Data: llm.Base64("AAAA")}}, {Text: llm.NewVerbatim("look")},
	}})
	_, err := decide(t, req)
	require.NoError(t, err, "a text model may go on after it")
	require.Len(t, req.Items[1].Parts, 1)
	require.Nil(t, req.Items[1].Parts[0].Media)
}
