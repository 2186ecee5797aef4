// Package api is the HTTP face of the simulator.
//
// What lives here: the routes, the making of a job from a request, and the two
// ways to send an answer: a stream of events or one JSON body. What does not:
// what the answer says (script), how long it takes (pace), what the prompt costs
// (tokenizer, cache). The invariant: a request that ran holds its slot until its
// last bytes are about to leave, and both ways of sending carry the same plan.
// To add a route, add it to Handler; to add a fault, see stream.fault and
// Server.answer.
package api

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/engy-ai/engy/services/sim/internal/cache"
	"github.com/engy-ai/engy/services/sim/internal/register"
	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/wire"
)

// Fingerprint is the system_fingerprint of every answer and the owner of every
// model, so that nobody takes the simulator for a model.
const Fingerprint = "engy-simulator"

// Model is a served id and the tokens that fit its window.
type Model struct {
	ID     string
	Window int
	// Media lists what the model takes beside text.
	Media []string
}

// Options are the values and bounds that a server works with.
type Options struct {
	Models         []Model
	AnswerTokens   int
	ThinkTokens    int
	Think          bool
	ReasoningField string
	TTFT, ITL      time.Duration
	Slots          int
	// CacheBlocks of zero turns the prefix cache off, and its report with it.
	CacheBlocks int

	BodyBytesMax   int64
	ChoicesMax     int
	TopLogprobsMax int
	StopsMax       int
	ToolsMax       int
	KeptBodiesMax  int
	KeptBytesMax   int
	WriteStallMax  time.Duration

	// Die is called when a directive asks for the end of the process; nil
	// refuses the directive.
	Die func()
	Log *slog.Logger
}

// Server answers requests. It is safe for concurrent use.
type Server struct {
	opt      Options
	words    *script.Vocabulary
	cache    *cache.Cache
	register *register.Register
	started  time.Time

	healthDelay atomic.Int64 // nanoseconds
	closeOnce   sync.Once
	closing     chan struct{}
}

// New returns a server. It takes nothing and starts nothing.
func New(opt Options) *Server {
	return &Server{
		opt:      opt,
		words:    script.NewVocabulary(),
		cache:    cache.New(opt.CacheBlocks),
		register: register.New(opt.Slots, opt.KeptBodiesMax, opt.KeptBytesMax),
		started:  time.Now(),
		closing:  make(chan struct{}),
	}
}

// Handler gives the routes.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.chat)
	mux.HandleFunc("POST /v1/completions", s.completion)
	mux.HandleFunc("POST /generate", s.generate)
	mux.HandleFunc("POST /tokenize", s.tokenize)
	mux.HandleFunc("POST /v1/tokenize", s.tokenize)
	mux.HandleFunc("POST /detokenize", s.detokenize)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /get_model_info", s.modelInfo)
	mux.HandleFunc("POST /abort_request", s.abort)
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /sim/requests", s.requests)
	mux.HandleFunc("GET /sim/kept/{name}", s.keptBody)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, &wire.Failure{Status: http.StatusNotFound, Message: "no route " + r.Method + " " + r.URL.Path})
	})
	return mux
}

// Close ends the answers that would never end by themselves and makes /health
// say no. Running answers go on; see Abort.
func (s *Server) Close() { s.closeOnce.Do(func() { close(s.closing) }) }

// Abort ends all running answers for a cause.
func (s *Server) Abort(cause error) { s.register.AbortAll(cause) }

func (s *Server) model(id string) (Model, *wire.Failure) {
	if id == "" {
		return s.opt.Models[0], nil
	}
	for _, m := range s.opt.Models {
		if m.ID == id {
			return m, nil
		}
	}
	return Model{}, &wire.Failure{
		Status: http.StatusNotFound, Param: "model",
		Message: "the model " + id + " does not exist here",
	}
}

// read takes the whole body in, within the bound, and decodes it.
func (s *Server) read(w http.ResponseWriter, r *http.Request, into any) ([]byte, *wire.Failure) {
	var buf bytes.Buffer
	if r.ContentLength > 0 && r.ContentLength <= s.opt.BodyBytesMax {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := io.Copy(&buf, http.MaxBytesReader(w, r.Body, s.opt.BodyBytesMax))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, &wire.Failure{Status: http.StatusRequestEntityTooLarge, Message: "the body is larger than the simulator takes"}
	}
	if err != nil {
		return nil, wire.Wrong("", "the body did not arrive whole")
	}
	return buf.Bytes(), wire.Read(buf.Bytes(), into)
}

// fail sends a failure. Headers tell clients when to come back, as engines do.
func (s *Server) fail(w http.ResponseWriter, f *wire.Failure) {
	if f.Status == http.StatusTooManyRequests || f.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	s.send(w, f.Status, f.Body())
}

func (s *Server) send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		s.opt.Log.Debug("client left before its answer", "status", status)
	}
}
