package runner

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/llm"
)

// patience bounds every wait; a good run needs a fraction of it.
const patience = 30 * time.Second

// owner keeps the frames that reach it.
type owner struct {
	mu     sync.Mutex
	frames []bus.Frame
	came   chan struct{}
}

func (o *owner) Grant(bus.Claim) (bus.Grant, []byte) { return bus.Grant{}, nil }
func (o *owner) Body(bus.Claim) []byte               { return nil }
func (o *owner) Declined(string, string, int, bool)  {}
func (o *owner) Alive(string, []bus.Running) []bus.Running {
	return nil
}

func (o *owner) Take(_ string, f bus.Frame, _ func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.frames = append(o.frames, f)
	o.came <- struct{}{}
	return true
}

func (o *owner) text() (text string, events int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.frames {
		for _, e := range f.Events {
			text += e.Text
			events++
		}
	}
	return text, events
}

func newOwner(t *testing.T) (*owner, *bus.Stream) {
	t.Helper()
	b := bustest.New(t)
	o := &owner{came: make(chan struct{}, 10_000)}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- b.Own(t.Context(), "edge", o, func() { close(ready) }) }()
	t.Cleanup(func() { require.NoError(t, <-ended) })
	<-ready
	s, err := b.Stream(bus.Ticket{Job: "0a", Owner: "edge"}, "w", 1)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return o, s
}

func text(s string) llm.Event { return llm.Event{Kind: llm.Text, Text: s} }

func TestTheFirstTextLeavesAtOnceAndTheRestByItself(t *testing.T) {
	t.Parallel()
	o, s := newOwner(t)
	b, begun := newBatch(s, true), time.Now()
	require.NoError(t, b.add(text("first")))
	require.Empty(t, b.pending, "the first does not wait")
	for range 20 {
		require.NoError(t, b.add(text("x")))
	}
	most := 3 + int(time.Since(begun)/StreamWindow) // the first, one a window, and the rest
	require.Eventually(t, func() bool { got, _ := o.text(); return got == "first"+strings.Repeat("x", 20) }, patience, time.Millisecond)
	_, events := o.text()
	require.Equal(t, 21, events, "a stream keeps its tokens apart")
	o.mu.Lock()
	require.LessOrEqual(t, len(o.frames), most, "fast tokens share frames")
	o.mu.Unlock()
	require.Empty(t, b.rest())
}

func TestAnAnswerThatNobodyReadsYetIsOneText(t *testing.T) {
	t.Parallel()
	_, s := newOwner(t)
	b := newBatch(s, false)
	for range 50 {
		require.NoError(t, b.add(text("ab")))
	}
	require.NoError(t, b.add(llm.Event{Kind: llm.Reasoning, Text: "r"}))
	require.NoError(t, b.add(llm.Event{Kind: llm.Text, Text: "t", Logprobs: []byte(`[{}]`)}))
	require.NoError(t, b.add(text("u")))
	rest := b.rest()
	require.Equal(t, strings.Repeat("ab", 50), rest[0].Text)
	require.Len(t, rest, 4, "kinds and logprobs stay apart")
}

func TestALongTextIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	o, s := newOwner(t)
	b := newBatch(s, true)
	long := strings.Repeat("北", textBytesMax) // three times the bound in bytes
	require.NoError(t, b.add(llm.Event{Kind: llm.ToolCall, Call: &llm.CallDelta{Index: 0, ID: "a", Name: "n"}, Text: long}))
	require.NoError(t, s.Emit(b.rest()))
	require.Eventually(t, func() bool { got, _ := o.text(); return got == long }, patience, time.Millisecond)
	named := 0
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.frames {
		for _, e := range f.Events {
			if e.Call.Name != "" {
				named++
			}
		}
	}
	require.Equal(t, 1, named, "the name stands once")
}

// TestJoiningLosesNothing: whatever is joined and whenever a batch leaves, the
// texts of each kind come out in their order, and each log-probability with its
// own text.
func TestJoiningLosesNothing(t *testing.T) {
	t.Parallel()
	o, s := newOwner(t)
	rapid.Check(t, func(t *rapid.T) {
		o.mu.Lock()
		o.frames = nil
		o.mu.Unlock()
		b := newBatch(s, false)
		b.window = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "window")
		type run struct {
			kind           llm.Kind
			text, logprobs string
		}
		join := func(runs []run, e llm.Event) []run {
			if n := len(runs); n > 0 && runs[n-1].kind == e.Kind && runs[n-1].logprobs == "" && len(e.Logprobs) == 0 {
				runs[n-1].text += e.Text
				return runs
			}
			return append(runs, run{e.Kind, e.Text, string(e.Logprobs)})
		}
		var want, got []run
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			e := llm.Event{
				Kind: rapid.SampledFrom([]llm.Kind{llm.Text, llm.Reasoning}).Draw(t, "kind"),
				Text: strings.Repeat(rapid.StringN(0, 3, 12).Draw(t, "text"), rapid.SampledFrom([]int{1, joinBytes / 4}).Draw(t, "times")),
			}
			if rapid.Bool().Draw(t, "scored") {
				e.Logprobs = []byte(`[{}]`)
			}
			require.NoError(t, b.add(e))
			want = join(want, e)
		}
		require.NoError(t, s.Emit(append(b.rest(), llm.Event{Kind: llm.Text, Text: "the end", Logprobs: []byte(`[0]`)})))
		require.Eventually(t, func() bool { text, _ := o.text(); return strings.HasSuffix(text, "the end") }, patience, 100*time.Microsecond)
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, f := range o.frames {
			for _, e := range f.Events {
				require.LessOrEqual(t, len(e.Text), joinBytes+12*joinBytes/4)
				got = join(got, e)
			}
		}
		require.Equal(t, append(want, run{llm.Text, "the end", "[0]"}), got)
	})
}
