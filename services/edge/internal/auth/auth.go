// Package auth turns a key into a principal. It holds the edge's copy of the
// projection that billing publishes, filed under SHA-256: the edge never asks a
// database, and a key is nowhere in memory longer than its check takes.
package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
)

// Prefix opens every inference key.
const Prefix = "sk-engy-"

// keyBytesMax bounds what is hashed.
const keyBytesMax = 256

// Keys is safe for concurrent use. Use New.
type Keys struct {
	mu    sync.RWMutex
	known map[[sha256.Size]byte]bus.Principal
	empty map[string]bool
}

// New gives an empty copy.
func New() *Keys {
	return &Keys{known: map[[sha256.Size]byte]bus.Principal{}, empty: map[string]bool{}}
}

// Change puts a principal under a hash, or takes it away when p is nil.
func (k *Keys) Change(hashHex string, p *bus.Principal) {
	raw, err := hex.DecodeString(hashHex)
	if err != nil || len(raw) != sha256.Size {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p == nil {
		delete(k.known, [sha256.Size]byte(raw))
		return
	}
	k.known[[sha256.Size]byte(raw)] = *p
}

// Funds notes whether an account has any money.
func (k *Keys) Funds(f bus.Funds) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f.Empty {
		k.empty[f.Account] = true
	} else {
		delete(k.empty, f.Account)
	}
}

// Check gives the principal of a key. Hashes are compared, so the time that it
// takes tells nothing of the key.
func (k *Keys) Check(secret string) (bus.Principal, error) {
	if secret == "" {
		return bus.Principal{}, fault.New(fault.Unauthorized, "an API key is required: Authorization: Bearer "+Prefix+"...")
	}
	if !strings.HasPrefix(secret, Prefix) || len(secret) > keyBytesMax {
		return bus.Principal{}, fault.New(fault.Unauthorized, "the API key is not valid")
	}
	hash := sha256.Sum256([]byte(secret))
	k.mu.RLock()
	p, ok := k.known[hash]
	k.mu.RUnlock()
	if !ok {
		return bus.Principal{}, fault.New(fault.Unauthorized, "the API key is not valid")
	}
	return p, nil
}

// Empty tells whether an account is known to have no money.
func (k *Keys) Empty(account string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.empty[account]
}
