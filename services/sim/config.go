package sim

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/engy-ai/engy/services/sim/internal/api"
)

// WindowUsual is the context window of a model that does not name its own.
const WindowUsual = 1 << 20

// Config holds the values of a simulator. The tags name the environment
// variables of the program, all of them with the prefix SIM_.
type Config struct {
	// Listen is the address to serve on; port 0 picks a free one.
	Listen string `env:"LISTEN" envDefault:"127.0.0.1:8000"`
	// Models are the served ids, each with its window in tokens and what it takes
	// beside text: "small=8192,large,seeing=8192+image+audio". An id without a
	// number gets WindowUsual. The first one answers requests that name no model.
	Models Models `env:"MODELS" envDefault:"engy-sim"`
	// AnswerTokens is the length of an answer that nothing else limits. Zero
	// means 64.
	AnswerTokens int `env:"ANSWER_TOKENS" envDefault:"64"`
	// Think turns reasoning on for requests that do not say.
	Think bool `env:"THINK"`
	// ThinkTokens is the length of reasoning of usual effort. Zero means 32.
	// Low effort halves it; high, xhigh and max make it two to four times longer.
	ThinkTokens int `env:"THINK_TOKENS" envDefault:"32"`
	// ReasoningField is the member that carries reasoning: reasoning_content or
	// reasoning. Empty means the first.
	ReasoningField string `env:"REASONING_FIELD"`
	// TTFT is the time to the first token. Zero is at once.
	TTFT time.Duration `env:"TTFT"`
	// ITL is the time from one token to the next. Zero is as fast as it goes.
	ITL time.Duration `env:"ITL"`
	// Slots is how many requests run at once; the next one gets 429. Zero means
	// SlotsMax.
	Slots int `env:"SLOTS"`
	// CacheBlocks is the size of the prefix cache in blocks of 64 tokens. Zero
	// means 65536, about four million tokens.
	CacheBlocks int `env:"CACHE_BLOCKS"`
	// NoCache turns the prefix cache off, and cached_tokens with it.
	NoCache bool `env:"NO_CACHE"`
	// AllowDie lets a request end the process with the directive die.
	AllowDie bool `env:"ALLOW_DIE"`
	// Drain is how long running answers may go on after the end was asked for.
	// Zero aborts them at once.
	Drain time.Duration `env:"DRAIN" envDefault:"10s"`
}

// Model is a served id and its context window in tokens.
type Model struct {
	ID string
	// Window of zero means WindowUsual.
	Window int
	// Media lists what the model takes beside text: image, audio.
	Media []string
}

// Models is a list of models that can be read from one line of text.
type Models []Model

// UnmarshalText reads "id=window+image,id".
func (m *Models) UnmarshalText(text []byte) error {
	*m = nil
	for _, one := range strings.Split(string(text), ",") {
		spec, media, shows := strings.Cut(strings.TrimSpace(one), "+")
		id, window, sized := strings.Cut(spec, "=")
		model := Model{ID: id}
		if shows {
			model.Media = strings.Split(media, "+")
		}
		if sized {
			n, err := strconv.Atoi(window)
			if err != nil {
				return fmt.Errorf("model %s: window %q is no number", id, window)
			}
			model.Window = n
		}
		*m = append(*m, model)
	}
	return nil
}

// String writes the list in the form that UnmarshalText reads.
func (m Models) String() string {
	parts := make([]string, 0, len(m))
	for _, one := range m {
		part := one.ID
		if one.Window != 0 {
			part += "=" + strconv.Itoa(one.Window)
		}
		for _, m := range one.Media {
			part += "+" + m
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// Validate reports all problems at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Listen == "" {
		bad("listen address is missing")
	}
	if len(c.Models) == 0 || len(c.Models) > ModelsMax {
		bad("the number of models is from 1 to %d, not %d", ModelsMax, len(c.Models))
	}
	seen := make(map[string]bool)
	for _, m := range c.Models {
		if m.ID == "" || seen[m.ID] {
			bad("model id %q is empty or there twice", m.ID)
		}
		seen[m.ID] = true
		if m.Window < 0 || m.Window > WindowMax {
			bad("model %s: the window is from 1 to %d, not %d", m.ID, WindowMax, m.Window)
		}
		for _, kind := range m.Media {
			if kind != "image" && kind != "audio" {
				bad("model %s: beside text it may take image and audio, not %q", m.ID, kind)
			}
		}
	}
	for _, n := range []struct {
		name       string
		value, max int
	}{
		{"answer tokens", c.AnswerTokens, AnswerTokensMax},
		{"think tokens", c.ThinkTokens, AnswerTokensMax},
		{"slots", c.Slots, SlotsMax},
		{"cache blocks", c.CacheBlocks, CacheBlocksMax},
	} {
		if n.value < 0 || n.value > n.max {
			bad("%s are from 0 to %d, not %d", n.name, n.max, n.value)
		}
	}
	for name, d := range map[string]time.Duration{"ttft": c.TTFT, "itl": c.ITL, "drain": c.Drain} {
		if d < 0 || d > PaceMax {
			bad("%s is from 0 to %s, not %s", name, PaceMax, d)
		}
	}
	if f := c.ReasoningField; f != "" && f != "reasoning" && f != "reasoning_content" {
		bad("reasoning field is reasoning or reasoning_content, not %q", f)
	}
	return errors.Join(errs...)
}

// options fills in what zero means.
func (c Config) options(log *slog.Logger, die func()) api.Options {
	o := api.Options{
		AnswerTokens: or(c.AnswerTokens, 64), ThinkTokens: or(c.ThinkTokens, 32), Think: c.Think,
		ReasoningField: or(c.ReasoningField, "reasoning_content"),
		TTFT:           c.TTFT, ITL: c.ITL,
		Slots: or(c.Slots, SlotsMax), CacheBlocks: or(c.CacheBlocks, 1<<16),
		BodyBytesMax: BodyBytesMax, ChoicesMax: ChoicesMax, TopLogprobsMax: TopLogprobsMax,
		StopsMax: StopsMax, ToolsMax: ToolsMax, KeptBodiesMax: KeptBodiesMax, KeptBytesMax: KeptBytesMax,
		WriteStallMax: WriteStallMax, Log: log,
	}
	if c.NoCache {
		o.CacheBlocks = 0
	}
	if c.AllowDie {
		o.Die = die
	}
	for _, m := range c.Models {
		o.Models = append(o.Models, api.Model{ID: m.ID, Window: or(m.Window, WindowUsual), Media: m.Media})
	}
	return o
}

// or gives the value, or what its zero means.
func or[T comparable](value, zero T) T {
	var none T
	if value == none {
		return zero
	}
	return value
}
