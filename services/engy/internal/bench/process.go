package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	stopWait     = 20 * time.Second
	logTailBytes = 4 << 10
)

// process is one service.
type process struct {
	name string
	cmd  *exec.Cmd
	// ready gets the URL that the service says it serves at, if it says one.
	ready  chan string
	exited chan struct{}
	err    error // written before exited is closed
	log    string
	// wanted says that the end of the process is no failure.
	wanted atomic.Bool
}

// launch starts a service. Whatever it writes to its error output is kept in a
// file of logs.
func launch(name, program, logs string, env []string, args ...string) (*process, error) {
	p := &process{name: name, ready: make(chan string, 1), exited: make(chan struct{}), log: filepath.Join(logs, name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	p.cmd = exec.Command(program, append([]string{name}, args...)...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = env, &readyLine{ready: p.ready}, log, dieWithUs()
	started := make(chan error, 1)
	go func() {
		defer log.Close()
		// The kernel ends a child with the thread that made it, so that thread
		// must live as long as the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks the process to end and insists after a while.
func (p *process) stop() error {
	p.wanted.Store(true)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		// A process that is gone already is what we want.
		_ = p.cmd.Process.Signal(s)
		t := time.NewTimer(stopWait)
		select {
		case <-p.exited:
			t.Stop()
			return nil
		case <-t.C:
		}
	}
	return fmt.Errorf("%s, process %d, does not end", p.name, p.pid())
}

// death tells why a process ended, with the end of its log.
func (p *process) death() error {
	tail, err := os.ReadFile(p.log)
	if err == nil && len(tail) > logTailBytes {
		tail = tail[len(tail)-logTailBytes:]
	}
	return errors.Join(fmt.Errorf("%s ended: %w", p.name, p.err), fmt.Errorf("its last words:\n%s", bytes.TrimSpace(tail)))
}

// readyLine passes on the URL of a line "ready URL" and drops the rest.
type readyLine struct {
	ready chan string
	mu    sync.Mutex
	part  []byte
}

// Write reads whole lines.
func (r *readyLine) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part = append(r.part, b...)
	for {
		line, rest, ok := bytes.Cut(r.part, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		r.part = rest
		if url, ok := strings.CutPrefix(string(line), "ready "); ok {
			select {
			case r.ready <- url:
			default:
			}
		}
	}
}
