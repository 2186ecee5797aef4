package pg

import (
	"errors"
	"io"
	"net"
)

// isConnLost recognises a connection that ended under a statement. Whether the
// statement took effect is then unknown.
func isConnLost(err error) bool {
	var ne net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &ne)
}
