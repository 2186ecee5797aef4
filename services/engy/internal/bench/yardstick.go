package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	yardClients = 64
	yardSpan    = time.Second
	yardAnswer  = `{"choices":[{"message":{"role":"assistant","content":"as ever"}}],"usage":{"completion_tokens":2}}`
)

// yardstick is how many exchanges a second the load generator makes with a
// server of this process that always answers the same. It measures the machine
// of this hour and nothing of the product: figures in microseconds from two
// runs may be compared as far as their yardsticks agree.
func yardstick(ctx context.Context) (float64, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("yardstick: %w", err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { answerSame(conn) })
		}
	})
	t := target{addr: l.Addr().String(), secrets: []string{"yardstick"}, direct: true}
	w := work{name: "yardstick", tokens: 2}
	ld := &load{work: w, target: t, book: &answerBook{texts: map[int]uint64{}}, form: w.form(t)}
	cs := newClients(t.addr, yardClients)
	how := closed{clients: yardClients, during: yardSpan / 4}
	ld.closed(ctx, cs, how)
	how.during = yardSpan
	seen := ld.closed(ctx, cs, how)
	closeAll(cs)
	l.Close()
	conns.Wait()
	if seen.failed+seen.wrong > 0 {
		return 0, fmt.Errorf("yardstick: %d exchanges went wrong", seen.failed+seen.wrong)
	}
	return float64(seen.answered) / seen.span.Seconds(), nil
}

// answerSame takes requests of the load generator, whose bodies end with the
// only "]}" that they have, until the connection ends.
func answerSame(conn net.Conn) {
	defer conn.Close()
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(yardAnswer)) + "\r\n\r\n" + yardAnswer)
	in := bufio.NewReaderSize(conn, readBuffer)
	for {
		for {
			part, err := in.ReadSlice('}')
			if err != nil {
				return
			}
			if bytes.HasSuffix(part, []byte("]}")) {
				break
			}
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
