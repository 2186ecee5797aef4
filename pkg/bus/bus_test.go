package bus_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/bus/bustest"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/pricing"
)

// patience bounds every wait; a good run needs a fraction of it.
const patience = 30 * time.Second

// owner is an edge of a few lines.
type owner struct {
	mu     sync.Mutex
	bodies map[string][]byte
	frames []bus.Frame
	refuse map[string]bool
	// declined gets who did not take which attempt.
	declined chan string
}

func (o *owner) Declined(worker, job string, attempt int, vanished bool) {
	o.declined <- fmt.Sprint(worker, " ", job, " ", attempt, " ", vanished)
}

func (o *owner) Grant(c bus.Claim) (bus.Grant, []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	body, ok := o.bodies[c.Job]
	if !ok {
		return bus.Grant{Verdict: bus.Gone}, nil
	}
	return bus.Grant{Verdict: bus.Granted, Attempt: 1}, body
}

func (o *owner) Body(c bus.Claim) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bodies[c.Job]
}

func (o *owner) Take(_ string, f bus.Frame, booked func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.frames = append(o.frames, f)
	if booked != nil && !o.refuse[f.Job] {
		booked()
	}
	return !o.refuse[f.Job]
}

func (o *owner) Alive(string, []bus.Running) []bus.Running { return nil }

// serve runs an owner for the test's life.
func serve(t *testing.T, b *bus.Bus, name string, o *owner) context.CancelFunc {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- b.Own(ctx, name, o, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(t, err)
	}
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// unexpected is for offers that every queue takes.
func unexpected(t *testing.T) func(error) {
	return func(err error) {
		if err != nil {
			t.Errorf("a ticket was refused: %v", err)
		}
	}
}

func ticket(job string) bus.Ticket {
	return bus.Ticket{
		Job: job, Owner: "edge-1", Region: "eu", Model: "qwen3.8-27b", Class: bus.Open,
		Offer: 1, Deadline: time.Now().Add(time.Minute),
	}
}

func queue() bus.Queue { return bus.Queue{Region: "eu", Model: "qwen3.8-27b", Class: bus.Open} }

// pull collects the tickets of a queue.
func pull(t *testing.T, b *bus.Bus, q bus.Queue, free func() int) chan *bus.Delivery {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	got, ended := make(chan *bus.Delivery, 100), make(chan error, 1)
	go func() { ended <- b.Pull(ctx, q, free, nil, func(d *bus.Delivery) { got <- d }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return got
}

func take(t *testing.T, from chan *bus.Delivery) *bus.Delivery {
	t.Helper()
	select {
	case d := <-from:
		return d
	case <-time.After(patience):
		require.Fail(t, "no ticket came")
		return nil
	}
}

func TestAJobTravels(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"a small body": 100, "a body of one chunk": bus.ChunkBytes, "a body of many chunks": 4<<20 + 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.New(t)
			body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			o := &owner{bodies: map[string][]byte{"j1": body}}
			serve(t, b, "edge-1", o)
			got := pull(t, b, queue(), func() int { return 1 })
			_, err := b.Offer(ticket("j1"), unexpected(t))
			require.NoError(t, err)
			d := take(t, got)
			w, verdict, err := b.Claim(t.Context(), d.Ticket, "w1")
			require.NoError(t, err)
			require.Equal(t, bus.Granted, verdict)
			whole, err := b.Body(t.Context(), d.Ticket, "w1", w)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, whole))

			s, err := b.Stream(d.Ticket, "w1", w.Attempt)
			require.NoError(t, err)
			require.NoError(t, s.Emit([]llm.Event{{Kind: llm.Text, Text: "北京🙂"}}))
			wanted, err := s.Finish(t.Context(), []llm.Event{{Kind: llm.Done, Finish: llm.Stop}},
				bus.End{Outcome: pricing.Finished, Usage: llm.Usage{Prompt: 3, Completion: 1}})
			require.NoError(t, err)
			require.True(t, wanted)
			s.Close()
			require.NoError(t, d.Ack())
			require.Len(t, o.frames, 2)
			require.Equal(t, "北京🙂", o.frames[0].Events[0].Text)
			require.Equal(t, []int{1, 2}, []int{o.frames[0].Seq, o.frames[1].Seq})
			require.Equal(t, pricing.Finished, o.frames[1].End.Outcome)
		})
	}
}

func TestManyStreamsShareMessagesInOrder(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	o := &owner{bodies: map[string][]byte{}}
	serve(t, b, "edge-1", o)
	const streams, frames = 64, 50
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			s, err := b.Stream(ticket(string(rune('A'+i))), "w1", 1)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for range frames {
				if err := s.Emit([]llm.Event{{Kind: llm.Text, Text: "x"}}); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Finish(t.Context(), nil, bus.End{Outcome: pricing.Finished}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	last := map[string]int{}
	for _, f := range o.frames {
		require.Equal(t, last[f.Job]+1, f.Seq)
		last[f.Job] = f.Seq
	}
	require.Len(t, last, streams)
	for _, n := range last {
		require.Equal(t, frames+1, n)
	}
}

func TestNoTicketWaitsAtABusyWorker(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	busy := pull(t, b, queue(), func() int { return 0 })
	idle := pull(t, b, queue(), func() int { return 2 })
	for _, j := range []string{"j1", "j2", "j3"} {
		_, err := b.Offer(ticket(j), unexpected(t))
		require.NoError(t, err)
		require.NoError(t, take(t, idle).Ack())
	}
	require.Empty(t, busy)
}

func TestATicketForOneWorkerReachesOnlyThatOne(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	shared := pull(t, b, queue(), func() int { return 5 })
	own := pull(t, b, bus.Queue{Region: "eu", Worker: "w2"}, func() int { return 5 })
	tk := ticket("j1")
	tk.Worker, tk.Offer = "w2", 2
	_, err := b.Offer(tk, unexpected(t))
	require.NoError(t, err)
	require.Equal(t, 2, take(t, own).Ticket.Offer)
	require.Empty(t, shared)
}

func TestAFullQueueRefuses(t *testing.T) {
	t.Parallel()
	b := bustest.Connect(t, bustest.Server(t), bus.Config{QueueMax: 2})
	for i, j := range []string{"j1", "j2", "j3"} {
		refusal := make(chan error, 1)
		o, err := b.Offer(ticket(j), func(err error) { refusal <- err })
		require.NoError(t, err)
		if i < 2 {
			require.NoError(t, <-refusal, "it is stored")
			require.NoError(t, o.Withdraw(t.Context()))
			_, err = b.Offer(func() bus.Ticket { k := ticket(j); k.Offer = 2; return k }(), unexpected(t))
			require.NoError(t, err)
			continue
		}
		select {
		case err := <-refusal:
			require.True(t, fault.Is(err, fault.Busy), err)
		case <-time.After(patience):
			require.Fail(t, "the queue took one too many")
		}
	}
}

func TestTheSameOfferIsStoredOnce(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	for range 3 {
		_, err := b.Offer(ticket("j1"), unexpected(t))
		require.NoError(t, err)
	}
	_, err := b.Offer(ticket("j2"), unexpected(t))
	require.NoError(t, err)
	got := pull(t, b, queue(), func() int { return 5 })
	require.Equal(t, "j1", take(t, got).Ticket.Job)
	require.Equal(t, "j2", take(t, got).Ticket.Job)
}

func TestADeadOwnerIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	_, _, err := b.Claim(t.Context(), ticket("j1"), "w1")
	require.True(t, bus.Vanished(err), "claim: %v", err)
	_, err = b.StillWanted(t.Context(), "edge-1", "w1", nil)
	require.True(t, bus.Vanished(err), "alive: %v", err)
	_, err = b.Probe(t.Context(), "edge-1", "w1")
	require.True(t, bus.Vanished(err))
	s, err := b.Stream(ticket("j1"), "w1", 1)
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Finish(t.Context(), nil, bus.End{})
	require.True(t, bus.Vanished(err), "finish: %v", err)
}

func TestUsageIsStoredOnceAndComesAgainUntilBooked(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	u := bus.Usage{Job: "j1", Account: "a1", Model: "glm-5.2", Region: "eu"}
	require.NoError(t, b.RecordUsage(u))
	require.NoError(t, b.RecordUsage(u))
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan int, 10)
	tries := 0
	done := make(chan error, 1)
	go func() {
		done <- b.Usages(ctx, "billing", bus.Batches{Most: 200, Wait: 20 * time.Millisecond, AtOnce: 1}, func(_ context.Context, us []bus.UsageEvent) error {
			tries++
			if tries == 1 {
				return fault.New(fault.Internal, "not this time")
			}
			seen <- len(us)
			return nil
		})
	}()
	select {
	case n := <-seen:
		require.Equal(t, 1, n)
	case <-time.After(patience):
		require.Fail(t, "the event did not come again")
	}
	cancel()
	require.NoError(t, <-done)
}

// Any worker can write one: the hold of the job it names is settled all the same.
func TestAReportThatCannotBeReadIsNone(t *testing.T) {
	t.Parallel()
	b, nc := beside(t)
	for job, raw := range map[string]string{"j1": "{", "j2": `{"job":"j3","attempt":1}`} {
		_, err := nc.Request("reports.v1.w1."+job, []byte(raw), patience)
		require.NoError(t, err, "it is stored")
		r, err := b.ReportOf(t.Context(), job)
		require.NoError(t, err)
		require.Nil(t, r)
	}
}

func TestReportsOfDeadOwnersAreTold(t *testing.T) {
	t.Parallel()
	b := bustest.New(t)
	require.NoError(t, b.WriteReport(bus.Report{Job: "j1", Attempt: 1, Worker: "w1", Outcome: pricing.Finished}))
	require.NoError(t, b.WriteReport(bus.Report{Job: "j2", Attempt: 1, Worker: "w1"}))
	got := make(chan bus.Report, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- b.Orphans(ctx, "billing", func(_ context.Context, r bus.Report) error { got <- r; return nil })
	}()
	require.Equal(t, "j1", (<-got).Job)
	require.Equal(t, "j2", (<-got).Job)
	r, err := b.ReportOf(t.Context(), "j1")
	require.NoError(t, err)
	require.Equal(t, pricing.Finished, r.Outcome)
	r, err = b.ReportOf(t.Context(), "j9")
	require.NoError(t, err)
	require.Nil(t, r)
	cancel()
	require.NoError(t, <-done)
}
