package bus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// billings is where questions to billing go: to whichever of its processes the bus
// picks, until one does not answer. The bus gives a process that hangs its share like
// any other, so from then on they go, for a while, to one that is known to be there.
type billings struct {
	b     *Bus
	mu    sync.Mutex
	name  string // of the one that is asked; empty for any
	until time.Time
}

// ask puts a question and waits while ctx and the connection last. When there is no
// answer after half of HoldWait it asks one more time, of one that is there: who was
// asked first may only be slow.
func (s *billings) ask(ctx context.Context, prefix string, raw []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.b.link(), cancel)()
	answers := make(chan answer, asksMax)
	asked := 0
	put := func(name string) {
		asked++
		subj := prefix
		if name != "" {
			subj += "." + name
		}
		go func() {
			msg, err := s.b.nc.RequestWithContext(ctx, subj, raw)
			answers <- answer{name, msg, err}
		}()
	}
	put(s.chosen())
	looked := make(chan string, 1)
	silent := time.AfterFunc(HoldWait/2, func() { looked <- s.look(ctx) })
	defer silent.Stop()
	for left := 1; ; {
		select {
		case a := <-answers:
			if left--; a.err == nil || left == 0 && a.name == "" {
				return a.msg, a.err
			}
			if a.name != "" && Vanished(a.err) {
				s.choose("")
			}
			if left > 0 {
				continue
			}
			if asked == asksMax || !Vanished(a.err) {
				return nil, a.err
			}
			put("")
			left++
		case name := <-looked:
			if name != "" && asked < asksMax {
				put(name)
				left++
			}
		}
	}
}

// answer is what a question came to that was put to one by name, or to any.
type answer struct {
	name string
	msg  *nats.Msg
	err  error
}

// look finds a process of billing that answers, the first of all, and has the next
// questions go to it. It is empty when there is none.
func (s *billings) look(asking context.Context) (name string) {
	ctx, cancel := context.WithTimeout(asking, lookWait)
	defer cancel()
	msg, err := s.b.nc.RequestWithContext(ctx, billingsSubject, nil)
	if err == nil {
		name, err = Token(string(msg.Data))
	}
	if asking.Err() != nil {
		return "" // an answer came meanwhile
	}
	if err != nil {
		name = ""
	}
	s.choose(name)
	return name
}

func (s *billings) chosen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name != "" && time.Now().After(s.until) {
		s.name = ""
	}
	return s.name
}

func (s *billings) choose(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name, s.until = name, time.Now().Add(chosenFor)
}

// serve hands questions to handle until ctx ends: this process's share of those to
// any, and those to it, one at a time.
func (s *billings) serve(ctx context.Context, prefix string, handle nats.MsgHandler) error {
	var mu sync.Mutex
	one := func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		handle(m)
	}
	share, err := s.b.nc.QueueSubscribe(prefix, "billing", one)
	if err != nil {
		return fmt.Errorf("serve %s: %w", prefix, translate(err))
	}
	subs := []*nats.Subscription{share}
	defer func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe() // the connection may have ended before
		}
	}()
	for subj, h := range map[string]nats.MsgHandler{
		prefix + "." + s.b.id: one,
		billingsSubject: func(m *nats.Msg) {
			if err := m.Respond([]byte(s.b.id)); err != nil {
				s.b.log.Warn("question who is there not answered", "error", err)
			}
		},
	} {
		sub, err := s.b.nc.Subscribe(subj, h)
		if err != nil {
			return fmt.Errorf("serve %s: %w", prefix, translate(err))
		}
		subs = append(subs, sub)
	}
	if err := s.b.nc.FlushTimeout(publishTimeout); err == nil {
		s.b.log.Debug("questions are answered", "subject", prefix)
	}
	<-ctx.Done()
	return nil
}
