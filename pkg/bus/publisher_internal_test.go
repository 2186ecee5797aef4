package bus

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
)

func TestAStreamsAnswerIsRead(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]stored{
		`{"stream":"USAGE","seq":17}`:                                {seq: 17},
		`{"stream":"USAGE","seq":17,"duplicate":true}`:               {seq: 17, twice: true},
		`{"stream":"USAGE", "domain":"eu", "seq":18446744073709551}`: {seq: 18446744073709551},
	} {
		got, err := readStored(&nats.Msg{Data: []byte(raw)})
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
	_, err := readStored(&nats.Msg{Data: []byte(`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"J","seq":0}`)})
	require.True(t, queueFull(err), err)
	var api *jetstream.APIError
	_, err = readStored(&nats.Msg{Data: []byte(`{"error":{"code":400,"err_code":10001}}`)})
	require.ErrorAs(t, err, &api)
	require.False(t, queueFull(err))
	_, err = readStored(&nats.Msg{Header: nats.Header{"Status": {"503"}}})
	require.True(t, Vanished(err))
	_, err = readStored(&nats.Msg{Data: []byte(`{"stream":"USAGE","seq":x}`)})
	require.True(t, fault.Is(err, fault.Unavailable))
}

// Every message is told of once, whatever becomes of its answer.
func TestWhatIsNotAnsweredEnds(t *testing.T) {
	t.Parallel()
	p := &publisher{pending: map[uint64]waiting{}}
	var told atomic.Int64
	var last error
	add := func(n uint64, ends time.Time) {
		p.pending[n] = waiting{func(_ stored, err error) { told.Add(1); last = err }, ends}
		p.order = append(p.order, n)
	}
	now := time.Now()
	add(1, now.Add(-time.Second))
	add(2, now.Add(-time.Second))
	add(3, now.Add(time.Minute))
	_, ok := p.take(1) // answered in time
	require.True(t, ok)
	_, ok = p.take(1)
	require.False(t, ok, "an answer that comes twice")
	p.fail(errUnanswered, func(w waiting) bool { return now.After(w.ends) })
	require.EqualValues(t, 1, told.Load())
	require.Equal(t, errUnanswered, last)
	require.Equal(t, 1, p.wait(time.Millisecond), "one is still under way")
	empty := make(chan int)
	go func() { empty <- p.wait(time.Minute) }()
	require.Eventually(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.empty != nil }, time.Minute, time.Millisecond)
	p.cutOff()
	require.Zero(t, <-empty)
	require.EqualValues(t, 2, told.Load())
	require.Equal(t, errCutOff, last)
	require.Empty(t, p.order)

	for n := range uint64(publishPendingMax) {
		add(n, now)
	}
	require.Equal(t, errFlooded, p.publish("s", "id", nil, nil))
}
