package worker

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
)

// Config is a worker's configuration, read from the environment under WORKER_.
type Config struct {
	// Name is what the operator calls this worker; empty means its id.
	Name string `env:"NAME"`
	// Region is where it stands: eu, us, cn, apac or other.
	Region string `env:"REGION" envDefault:"us"`
	// Engine is the base URL of the inference engine.
	Engine string `env:"ENGINE" envDefault:"http://127.0.0.1:8000"`
	// Models lists what is served, as catalogue id or id=name-at-engine, with
	// commas between; empty means all that the engine lists, under its names.
	Models []string `env:"MODELS"`
	// Modalities lists what the models take beside text, image or audio, for engines
	// that do not tell.
	Modalities []string `env:"MODALITIES"`
	// Slots is how many jobs run at once.
	Slots int `env:"SLOTS" envDefault:"64"`
	// ZDR and Proof say which certificates the worker holds.
	ZDR   bool `env:"ZDR"`
	Proof bool `env:"PROOF"`
	// Idle is how long the engine may be silent within an answer.
	Idle time.Duration `env:"IDLE" envDefault:"5m"`
	// LostAfter is how long the engine may say nothing at all, neither when it is asked
	// nor in an answer, before its jobs are ended; 0 is as soon as ProbeMisses is. An
	// engine that says nothing while it reads a prompt needs longer than its longest
	// prompt.
	LostAfter time.Duration `env:"LOST_AFTER" envDefault:"15s"`
	// Grace is how long jobs may go on after a stop signal.
	Grace time.Duration `env:"GRACE" envDefault:"30s"`
}

// Validate reports all problems at once.
func (c Config) Validate() error {
	var problems []error
	bad := func(message string) { problems = append(problems, fault.New(fault.Invalid, message)) }
	if !bus.KnownRegion(c.Region) {
		bad("WORKER_REGION must be eu, us, cn, apac or other")
	}
	switch u, err := url.Parse(c.Engine); {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		bad("WORKER_ENGINE must be an http or https URL")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		bad("WORKER_ENGINE must have no more than a host, a port and a path")
	}
	if c.Slots < 1 || c.Slots > SlotsMax {
		bad("WORKER_SLOTS is out of bounds")
	}
	if c.Idle <= 0 || c.Grace < 0 || c.LostAfter < 0 {
		bad("WORKER_IDLE must be positive, WORKER_GRACE and WORKER_LOST_AFTER not negative")
	}
	for _, m := range c.Modalities {
		if m != "image" && m != "audio" {
			bad("WORKER_MODALITIES may hold image and audio")
		}
	}
	for _, m := range c.Models {
		if id, name, named := strings.Cut(m, "="); id == "" || named && name == "" {
			bad("WORKER_MODELS holds an entry that is not id or id=name")
		}
	}
	return errors.Join(problems...)
}
