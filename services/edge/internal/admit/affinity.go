package admit

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/engy-ai/engy/pkg/llm"
)

const (
	// WarmTokens is the estimate from which on a prompt is worth a cache.
	WarmTokens = 1024
	// beginningBytes is how much of a prompt's beginning is looked at.
	beginningBytes = 64 << 10
	// rawBytes is the same for a prompt without turns, whose end moves from one
	// request to the next.
	rawBytes = 4 << 10
	// affinityBytes is how much of a hash is kept: enough to tell some millions of
	// conversations apart, too little to tell what they are.
	affinityBytes = 8
)

// affinity gives requests of one account that begin alike the same name: the turns
// of a conversation, whose prompts begin with all the turns before. Where one of
// them was computed, the next one is quick. It is empty for a prompt that is too
// short for it to matter. A caller that names its cache knows better.
func affinity(req *llm.Request, account string, tokens int64) string {
	if tokens < WarmTokens && req.CacheKey == "" {
		return ""
	}
	h := sha256.New()
	write(h, account)
	write(h, req.Model)
	if write(h, req.CacheKey); req.CacheKey == "" {
		begin(h, req)
	}
	return hex.EncodeToString(h.Sum(nil)[:affinityBytes])
}

// begin writes a prompt to the end of what the user said first.
func begin(h hash.Hash, req *llm.Request) {
	if raw := req.Raw; raw != nil {
		h.Write(raw.Text[:min(len(raw.Text), rawBytes)])
		h.Write(raw.IDs[:min(len(raw.IDs), rawBytes)])
		return
	}
	left := beginningBytes
	for i := range req.Items {
		for _, p := range req.Items[i].Parts {
			data := []byte(p.Text)
			if p.Media != nil {
				data = p.Media.Data
			}
			data = data[:min(len(data), left)]
			h.Write(data)
			left -= len(data)
		}
		if req.Items[i].Role == llm.User || left == 0 {
			return
		}
	}
}

// write ends each word, so that two of them are never one other.
func write(h hash.Hash, word string) {
	_, _ = io.WriteString(h, word+"\x00") // a hash never fails
}
