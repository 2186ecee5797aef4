package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/engy-ai/engy/services/sim/internal/cache"
	"github.com/engy-ai/engy/services/sim/internal/pace"
	"github.com/engy-ai/engy/services/sim/internal/register"
	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
	"github.com/engy-ai/engy/services/sim/internal/wire"
)

// job is one request on its way to an answer.
type job struct {
	id      string
	model   Model
	created int64
	chat    bool
	common  *wire.Common
	set     script.Settings
	user    string // the last user text without marks

	logprobs bool
	top      int
	// echo is the prompt's text when the answer begins with it.
	echo string
	// promptTop asks for log-probabilities of the prompt with so many likely tokens
	// at each place, -1 for none.
	promptTop int
	// tokenIDs asks for the ids of the prompt and the answer.
	tokenIDs bool
	// native is the request on SGLang's own route, nil on the others.
	native *wire.Generate
	// scoreFrom is the first token of the prompt whose log-probability is asked
	// for. What is scored cannot come from a cache.
	scoreFrom int

	ids       []tokenizer.ID
	prompt    int
	cached    int
	cacheOn   bool
	plans     []script.Plan
	reasoning string // the member that carries reasoning
	pacer     *pace.Pacer
	end       func(register.Work)
}

// scoreNone is behind every prompt.
const scoreNone = math.MaxInt

// prepare turns a request into a prompt and what to answer to it.
type prepare func(*job) ([]tokenizer.ID, script.Ask, *wire.Failure)

// run is the life of a request: directives, slot, prompt, plan, answer.
func (s *Server) run(w http.ResponseWriter, r *http.Request, j *job, prep prepare) {
	if f := s.accept(j, r); f != nil {
		s.register.Refused()
		s.fail(w, f)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if err := s.register.Start(j.id, j.model.ID, cancel); err != nil {
		s.register.Refused()
		s.fail(w, startFailure(err))
		return
	}
	var once sync.Once
	j.end = func(work register.Work) {
		once.Do(func() { s.register.End(j.id, j.model.ID, work) })
	}
	// The ways out below end the job before their last bytes, so that whoever
	// has read an answer finds the slot free. This one is for the unforeseen.
	defer j.end(register.Work{Outcome: register.Aborted})

	if f := s.plan(j, prep); f != nil {
		j.end(register.Work{Refused: true})
		s.fail(w, f)
		return
	}
	w.Header().Set("X-Request-Id", j.id)
	if err := s.hang(ctx, j); err != nil {
		s.unanswered(w, j, err)
		return
	}
	if j.common.Stream {
		s.stream(ctx, w, j)
		return
	}
	s.answer(ctx, w, j)
}

// accept fills in what the request says about itself and applies the faults
// that come before a slot is taken.
func (s *Server) accept(j *job, r *http.Request) *wire.Failure {
	j.set = script.Usual()
	var err error
	if j.user, err = j.set.Marker(j.user); err != nil {
		return wire.Wrong("messages", "%s", err)
	}
	// The header comes second, so that it wins.
	if err := j.set.Header(r.Header.Get("X-Sim")); err != nil {
		return wire.Wrong("X-Sim", "%s", err)
	}
	var f *wire.Failure
	if j.model, f = s.model(j.common.Model); f != nil {
		return f
	}
	if j.set.SlowHealth >= 0 {
		s.healthDelay.Store(int64(j.set.SlowHealth))
	}
	if j.set.Die != script.Unset && s.opt.Die == nil {
		return wire.Wrong("", "the directive die is not allowed by this simulator's settings")
	}
	if j.set.Status != 0 {
		return &wire.Failure{Status: j.set.Status, Message: "the simulator was asked for this error"}
	}
	prefix := "cmpl-"
	if j.chat {
		prefix = "chatcmpl-"
	}
	j.created = time.Now().Unix()
	j.id = j.common.RID
	if j.id == "" {
		var b [16]byte
		// rand.Read never fails; it ends the program instead.
		rand.Read(b[:])
		j.id = prefix + hex.EncodeToString(b[:])
	}
	return nil
}

func startFailure(err error) *wire.Failure {
	if errors.Is(err, register.ErrBusy) {
		return &wire.Failure{Status: http.StatusTooManyRequests, Message: err.Error()}
	}
	return wire.Wrong("rid", "%s", err)
}

// plan tokenises the prompt, holds it against the window and the cache, and
// writes the answer's plan.
func (s *Server) plan(j *job, prep prepare) *wire.Failure {
	j.scoreFrom = scoreNone
	ids, ask, f := prep(j)
	if f != nil {
		return f
	}
	if f := s.fit(j, len(ids), &ask); f != nil {
		return f
	}
	// The cache is apart for every model and salt, the words are not: a salt is
	// there to separate tenants, not to change what they are told.
	salt := uint64(0xcbf29ce484222325)
	for _, b := range []byte(j.model.ID + "\x00" + j.common.CacheSalt) {
		salt = (salt ^ uint64(b)) * 0x100000001b3
	}
	blocks, sum := cache.Chain(ids)
	j.ids, j.prompt, j.cacheOn = ids, len(ids), s.opt.CacheBlocks > 0
	j.cached = min(s.cache.Take(salt, blocks)*cache.BlockTokens, j.scoreFrom)
	ask.After = script.Read(ids)
	if j.common.Seed != nil {
		sum += uint64(*j.common.Seed) * 0x9e3779b97f4a7c15
	}
	n := 1
	if j.common.N != nil {
		n = *j.common.N
	}
	ask.Settings, ask.User, ask.Natural = j.set, strings.ToValidUTF8(j.user, ""), s.opt.AnswerTokens
	ask.Stops, ask.IgnoreEOS, ask.TokensMin = j.common.Stop, j.common.IgnoreEOS, j.common.MinTokens
	for i := range n {
		ask.Seed = sum + uint64(i)
		j.plans = append(j.plans, s.words.Plan(ask))
	}
	ttft, itl := s.opt.TTFT, s.opt.ITL
	if j.set.TTFT >= 0 {
		ttft = j.set.TTFT
	}
	if j.set.ITL >= 0 {
		itl = j.set.ITL
	}
	j.pacer = pace.New(ttft, itl)
	j.reasoning = s.opt.ReasoningField
	if j.set.ReasoningField != "" {
		j.reasoning = j.set.ReasoningField
	}
	return nil
}

// fit checks the numbers of a request and sets how long the answer may be.
func (s *Server) fit(j *job, prompt int, ask *script.Ask) *wire.Failure {
	c := j.common
	switch {
	case prompt == 0:
		return wire.Wrong("prompt", "the prompt has no tokens")
	case c.N != nil && (*c.N < 1 || *c.N > s.opt.ChoicesMax):
		return wire.Wrong("n", "n is from 1 to %d, not %d", s.opt.ChoicesMax, *c.N)
	case len(c.Stop) > s.opt.StopsMax:
		return wire.Wrong("stop", "at most %d stop strings are allowed, not %d", s.opt.StopsMax, len(c.Stop))
	case j.top < 0 || j.top > s.opt.TopLogprobsMax:
		return wire.Wrong("top_logprobs", "top_logprobs is from 0 to %d, not %d", s.opt.TopLogprobsMax, j.top)
	case c.MaxTokens != nil && *c.MaxTokens < 1:
		return wire.Wrong("max_tokens", "max_tokens is at least 1, not %d", *c.MaxTokens)
	case prompt >= j.model.Window:
		return wire.Wrong("messages", "this model's maximum context length is %d tokens, but the prompt has %d tokens; shorten it",
			j.model.Window, prompt)
	}
	ask.TokensMax = j.model.Window - prompt
	if c.MaxTokens != nil {
		if *c.MaxTokens > ask.TokensMax {
			return wire.Wrong("max_tokens", "this model's maximum context length is %d tokens, but the prompt has %d tokens and max_tokens asks for %d more",
				j.model.Window, prompt, *c.MaxTokens)
		}
		ask.TokensMax = *c.MaxTokens
	}
	return nil
}

// hang keeps the silence that a directive asks for, before any byte.
func (s *Server) hang(ctx context.Context, j *job) error {
	switch {
	case j.set.Hang == script.Forever:
		return s.forever(ctx)
	case j.set.Hang > 0:
		// A schedule of its own, so that the answer's starts after the silence.
		err := pace.New(0, 0).Wait(ctx, j.set.Hang)
		j.pacer.Restart()
		return err
	}
	return nil
}

// errClosing ends the waits without end when the simulator stops.
var errClosing = errors.New("the simulator is stopping")

func (s *Server) forever(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.closing:
		return errClosing
	}
}

// unanswered ends a request that was stopped before any byte was sent. The
// client may be gone; if it is not, it learns why.
func (s *Server) unanswered(w http.ResponseWriter, j *job, err error) {
	j.end(register.Work{Outcome: register.Aborted, Prompt: j.prompt, Cached: j.cached})
	s.fail(w, &wire.Failure{Status: http.StatusServiceUnavailable, Message: err.Error()})
}

// work sums up a job of which the first n steps of every choice were made.
func (j *job) work(outcome register.Outcome, n int) register.Work {
	made, _ := j.tokens(n)
	return register.Work{Outcome: outcome, Prompt: j.prompt, Cached: j.cached, Completion: made}
}

// tokens counts the first n steps of every choice.
func (j *job) tokens(n int) (all, reasoning int) {
	for i := range j.plans {
		a, r := j.plans[i].Tokens(min(n, len(j.plans[i].Steps)))
		all, reasoning = all+a, reasoning+r
	}
	return all, reasoning
}

// longest is the number of steps of the longest choice.
func (j *job) longest() int {
	n := 0
	for i := range j.plans {
		n = max(n, len(j.plans[i].Steps))
	}
	return n
}
