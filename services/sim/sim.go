// Package sim is the simulator: an inference engine without a model, in a
// process of its own.
//
// What lives here: the front door (Config, Run) of a server that speaks the HTTP
// of OpenAI-compatible engines. What does not: anything of the product. A worker
// talks to the simulator as to any engine and cannot tell the difference, save
// by the name engy-simulator that every answer carries. The invariant: the
// answer to a request depends on the request and Config alone, its counts are
// the true counts of its own tokenizer, and its stream and its JSON say the same.
// To add a fault, see the package docs of internal/script and internal/api.
//
// # Directives
//
// A request says how it wants to be answered, and what should go wrong, in the
// header "X-Sim: key=value; key" or in a mark "[[sim key=value key]]" inside its
// last user message (or its plain prompt). The header wins. The text of a mark
// counts as prompt tokens. An unknown key or a bad value is answered with 400.
// "After N" means after N streamed tokens; an answer that is shorter never gets
// there. In a JSON answer such a fault happens to the body as a whole.
//
//	tokens=N            length of the answer's text; reasoning comes on top
//	think=N             N reasoning tokens first; 0 for none
//	ttft=50ms itl=20ms  time to the first token, and from each to the next
//	echo                the answer is the last user text without marks
//	echo_result         after the results of calls, the answer is their text
//	unicode             the answer is made of characters of two to four bytes
//	split               each event is sent in two writes that part a character
//	tool=NAME           call this tool, offered or not
//	args=TEXT           calls have this for arguments, and all go to one tool;
//	                    %XX as in a URL, %20 for a blank
//	calls=N             make N calls, going round the offered tools
//	tool_text           text between two calls
//	empty_args          calls have "" for arguments
//	repeat_args         a last event repeats the whole arguments of a call
//	empty_tools         text events also carry tool_calls, [] and null in turn
//	big=N               one event with N bytes of text or arguments; counts as
//	                    one token
//	reasoning_field=F   reasoning or reasoning_content
//	usage=none|wrong    no counts, or more cached than prompt and a billion out
//	usage=P:C:K         report prompt P, completion C, cached K; running counts
//	                    grow up to C
//	status=N            answer with this error, 400 to 599, before any token
//	hang=D|forever      silence before the first byte, headers included
//	stall=N             silence for ever after N
//	cut=N               connection reset inside an event after N
//	malformed=N         an event of broken JSON after N, then the end
//	die, die=N          the process ends, after N; only with Config.AllowDie
//	null_choices        a chunk with "choices":null near the end
//	null_choice         a chunk with "choices":[null] after the first token
//	bad_index           a chunk with indices out of range after the first token
//	object_content      a chunk whose content is an object after the first token
//	no_finish           no finish_reason
//	no_done             no [DONE]
//	abort_text          when aborted, the last event repeats the text so far
//	record=NAME         keep the request's body for GET /sim/kept/NAME
//	slow_health=D       /health takes D from now on, for everybody; 0s ends it
package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/engy-ai/engy/services/sim/internal/api"
)

// ErrDied is what Run returns after a directive asked for the end of the
// process. Connections are cut, not closed.
var ErrDied = errors.New("the simulator died as it was told")

// errDrained ends the answers that outlive the drain.
var errDrained = errors.New("the simulator is stopping")

// Deps is what is shared and alive.
type Deps struct {
	// Log gets one line at start and stop, and server errors. Nil is silent.
	Log *slog.Logger
	// Ready, when set, is called once with the address that is listened on,
	// before the first request is served.
	Ready func(addr string)
}

// Run serves until ctx ends, then drains: takes nothing new, and gives what is
// running Config.Drain to finish. It returns nil after a drain, however it went.
func Run(ctx context.Context, cfg Config, d Deps) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	log := d.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", cfg.Listen, err)
	}
	died := make(chan struct{})
	a := api.New(cfg.options(log, sync.OnceFunc(func() { close(died) })))
	srv := &http.Server{
		Handler:           a.Handler(),
		ReadHeaderTimeout: HeaderReadMax,
		ReadTimeout:       BodyReadMax,
		IdleTimeout:       IdleMax,
		MaxHeaderBytes:    HeaderBytesMax - headerSlack,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	log.Info("simulator listens", "addr", l.Addr().String(), "models", cfg.Models.String())
	if d.Ready != nil {
		d.Ready(l.Addr().String())
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-died:
		a.Close()
		a.Abort(ErrDied)
		_ = srv.Close()
		return errors.Join(ErrDied, ended(<-served))
	case <-ctx.Done():
	}
	drain(ctx, a, srv, cfg.Drain)
	if err := ended(<-served); err != nil {
		return err
	}
	log.Info("simulator stopped")
	return nil
}

// drain waits for running answers, then for their aborts, then for nothing.
func drain(ctx context.Context, a *api.Server, srv *http.Server, patience time.Duration) {
	a.Close()
	// The context has ended, yet what follows needs time: its values stay, its
	// end does not.
	ctx = context.WithoutCancel(ctx)
	calm, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if srv.Shutdown(calm) == nil {
		return
	}
	a.Abort(errDrained)
	brief, cancel := context.WithTimeout(ctx, AbortGrace)
	defer cancel()
	if srv.Shutdown(brief) != nil {
		_ = srv.Close()
	}
}

// ended is how serving ended: closing is no error.
func ended(err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}
