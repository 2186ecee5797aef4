package anthropic

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// idMark opens the ids that outward makes. Behind it stand tailDigits hex
	// digits, an underscore, and the engine's id in base64.
	idMark     = "engy_"
	tailDigits = 10
	// tailOfID is how much of the request's id makes them unique in a
	// conversation; the rest is the place of the call in its answer.
	tailOfID = 8
)

// callIDs gives the calls of one answer the ids that clients see. The dialect
// allows letters, digits, underscore and hyphen, and wants every id of a
// conversation to be another; some engines number their calls anew in each
// turn, with dots and colons. What is sent back says by itself what the
// engine's id was, so nothing has to be remembered.
type callIDs struct {
	request string
	n       int
	seen    map[string]bool
}

// outward gives the id for the next call.
func (c *callIDs) outward(id string) string {
	place := c.n
	c.n++
	tail := c.request[:min(tailOfID, len(c.request))] + hex.EncodeToString([]byte{byte(place)})
	if id == "" {
		return "toolu_" + tail
	}
	if !allowed(id) || inward(id) != id || c.seen[id] {
		return idMark + tail + "_" + base64.RawURLEncoding.EncodeToString([]byte(id))
	}
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	c.seen[id] = true
	return id
}

// inward gives the engine's id for one that a client sends back. Ids of another
// making stay what they are.
func inward(id string) string {
	rest, ok := strings.CutPrefix(id, idMark)
	if !ok || len(rest) <= tailDigits || rest[tailDigits] != '_' {
		return id
	}
	if _, err := strconv.ParseUint(rest[:tailDigits], 16, 64); err != nil {
		return id
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest[tailDigits+1:])
	if err != nil || len(raw) == 0 || !utf8.Valid(raw) {
		return id
	}
	return string(raw)
}

func allowed(id string) bool {
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
