package bus

import (
	"encoding/hex"
	"strings"

	"github.com/engy-ai/engy/pkg/fault"
)

// Class is the set of requirements that a ticket carries. A worker pulls every
// class that its certificates cover.
type Class string

const (
	Open     Class = "open"
	ZDR      Class = "zdr"
	Proof    Class = "proof"
	ZDRProof Class = "zdr-proof"
)

// ClassOf names the class of a job with these requirements.
func ClassOf(zdr, proof bool) Class {
	switch {
	case zdr && proof:
		return ZDRProof
	case zdr:
		return ZDR
	case proof:
		return Proof
	}
	return Open
}

// Covers lists the classes that a worker with these certificates may serve.
func Covers(zdr, proof bool) []Class {
	classes := []Class{Open}
	if zdr {
		classes = append(classes, ZDR)
	}
	if proof {
		classes = append(classes, Proof)
	}
	if zdr && proof {
		classes = append(classes, ZDRProof)
	}
	return classes
}

// tokenMax bounds a token before it is encoded, in bytes.
const tokenMax = 256

// Token turns any name into one subject token, reversibly: letters, digits and
// '-' stay, every other byte becomes '_' and two hex digits. Two names never
// share a token, and no token holds a dot or a wildcard.
func Token(name string) (string, error) {
	if name == "" || len(name) > tokenMax {
		return "", fault.New(fault.Invalid, "name is empty or too long for the bus")
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('_')
			b.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	return b.String(), nil
}

// Name turns a token back into the name it was made of.
func Name(token string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		if c != '_' {
			if !plain(c) {
				return "", fault.New(fault.Invalid, "not a bus token")
			}
			b.WriteByte(c)
			continue
		}
		if i+3 > len(token) {
			return "", fault.New(fault.Invalid, "not a bus token")
		}
		raw, err := hex.DecodeString(token[i+1 : i+3])
		if err != nil || plain(raw[0]) {
			return "", fault.New(fault.Invalid, "not a bus token")
		}
		b.WriteByte(raw[0])
		i += 2
	}
	return b.String(), nil
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

// subject joins fixed words and names; names are encoded.
func subject(prefix string, names ...string) (string, error) {
	var b strings.Builder
	b.WriteString(prefix)
	for _, n := range names {
		t, err := Token(n)
		if err != nil {
			return "", err
		}
		b.WriteByte('.')
		b.WriteString(t)
	}
	return b.String(), nil
}

const (
	jobsPrefix     = "jobs.v1"
	usagePrefix    = "usage.v1"
	reportsPrefix  = "reports.v1"
	claimsPrefix   = "claims.v1"
	dispatchPrefix = "dispatch.v1"
	declinesPrefix = "declines.v1"
	bodiesPrefix   = "bodies.v1"
	framesPrefix   = "frames.v1"
	alivePrefix    = "alive.v1"
	cancelPrefix   = "cancel.v1"
	probePrefix    = "probe.v1"
	tokensPrefix   = "tokens.v1"
	holdsPrefix    = "holds.v1"
	renewalsPrefix = "renewals.v1"
	// billingsSubject asks which processes of billing are there.
	billingsSubject = "billings.v1"

	anyWorker = "any"
)

func jobsSubject(t Ticket) (string, error) {
	w := t.Worker
	if w == "" {
		w = anyWorker
	}
	return subject(jobsPrefix, t.Region, t.Model, string(t.Class), w)
}

// namedSubject matches every ticket that names a worker.
func namedSubject(region, worker string) (string, error) {
	r, err := Token(region)
	if err != nil {
		return "", err
	}
	w, err := Token(worker)
	if err != nil {
		return "", err
	}
	return jobsPrefix + "." + r + ".*.*." + w, nil
}

// fleetNames reads back what fleetKey wrote.
func fleetNames(key string) (worker, model string, err error) {
	parts := strings.Split(key, ".")
	if len(parts) != 3 {
		return "", "", fault.New(fault.Invalid, "not a fleet key")
	}
	if worker, err = Name(parts[1]); err == nil {
		model, err = Name(parts[2])
	}
	return worker, model, err
}
