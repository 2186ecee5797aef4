// Package sse writes event-stream frames (WHATWG HTML, section 9.2). Data must
// hold no line break: JSON written by the codecs holds none.
package sse

// Data appends a frame without an event name.
func Data(b, data []byte) []byte {
	b = append(b, "data: "...)
	b = append(b, data...)
	return append(b, "\n\n"...)
}

// Comment appends a line that every reader skips; it keeps a connection alive.
func Comment(b []byte, text string) []byte {
	b = append(b, ": "...)
	b = append(b, text...)
	return append(b, "\n\n"...)
}
