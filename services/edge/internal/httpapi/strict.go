package httpapi

import (
	"bytes"

	"github.com/gofiber/fiber/v2"
)

// strict refuses requests whose length another server on the way could read in
// another way (RFC 9112, sections 5 and 6). The framework is more tolerant, and
// tolerance is how a second request is smuggled past a proxy. The connection is
// closed, so that nothing behind the head is ever taken for a request.
func (s *Server) strict(c *fiber.Ctx) error {
	if ambiguous(c.Request().Header.RawHeaders()) {
		return fiber.ErrBadRequest
	}
	return c.Next()
}

// ambiguous reads the raw header lines of a request.
func ambiguous(raw []byte) bool {
	lengths, codings := 0, 0
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 1 || raw[end-1] != '\r' {
			return true // a line that ends in a bare line feed, or not at all
		}
		line := raw[:end-1]
		raw = raw[end+1:]
		if len(line) == 0 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' || bytes.IndexByte(line, '\r') >= 0 || bytes.IndexByte(line, 0) >= 0 {
			return true // a folded line, or one with characters that end lines elsewhere
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") {
			return true
		}
		value = bytes.Trim(value, " \t")
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			lengths++
			if len(value) == 0 || len(bytes.Trim(value, "0123456789")) > 0 {
				return true
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			codings++
			if !bytes.EqualFold(value, []byte("chunked")) {
				return true
			}
		}
	}
	return lengths+codings > 1
}
