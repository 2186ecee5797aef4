package httpapi

import (
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/edge/internal/codec"
)

// countSlots is how many prompts are counted at once. Half of the processors are
// left to those who pay.
func countSlots() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// count answers how long a prompt is. It needs no key and no worker, starts no
// job and costs nothing, so what one caller and all together may ask is bounded.
func (s *Server) count(c *fiber.Ctx, cd codec.Codec, counter codec.Counter, route string) (err error) {
	x := &exchange{s: s, cd: cd, id: s.deps.NewID(), started: time.Now()}
	name(c, cd, x.id)
	defer func() {
		if p := recover(); p != nil {
			s.deps.Log.Error("panic", "request", x.id, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = x.refuse(c, fault.New(fault.Internal, "panic"))
		}
	}()
	p := s.passOf(c)
	defer p.leave()
	if err := p.refused(); err != nil {
		return x.refuse(c, err)
	}
	if s.draining.Load() {
		c.Set(fiber.HeaderConnection, "close")
		return x.refuse(c, errStopping)
	}
	if err := plain(c); err != nil {
		return x.refuse(c, err)
	}
	turn := time.NewTimer(countWait)
	defer turn.Stop()
	select {
	case s.counting <- struct{}{}:
		defer func() { <-s.counting }()
	case <-turn.C:
		return x.refuse(c, busy("too many prompts are being counted", gateRetry))
	}
	req, err := cd.Decode(route, c.Request().Body())
	if err != nil {
		return x.refuse(c, err)
	}
	tokens, err := s.deps.Count(s.base, req)
	if err != nil {
		return x.refuse(c, err)
	}
	return send(c, fiber.StatusOK, counter.Counted(tokens))
}

// passOf takes the pass that the request got when its head came. One whose head
// was written in another way than usual gets it here.
func (s *Server) passOf(c *fiber.Ctx) *pass {
	from := peer(c.Context().RemoteAddr())
	if cn, ok := c.Context().Conn().(*conn); ok {
		if p := cn.pass.Swap(nil); p != nil {
			return p
		}
		from = cn.client()
	}
	return s.gate.enter(from, int64(len(c.Request().Body())))
}

// refusedAtHead gives why the head of a request without a key was refused, nil
// when it was not.
func refusedAtHead(c net.Conn) error {
	if cn, ok := c.(*conn); ok {
		return cn.pass.Load().refused()
	}
	return nil
}
