package bustest

import (
	"bytes"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
)

// Stored records every message that a stream or bucket will store from now on,
// headers included, and gives them when asked: for tests that search for what
// must not be there. Messages that only pass are not among them.
func Stored(t testing.TB, url string) func() string {
	t.Helper()
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	var mu sync.Mutex
	var all bytes.Buffer
	for _, subject := range bus.StoredSubjects() {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			all.WriteString(m.Subject + "\n")
			for k, vs := range m.Header {
				for _, v := range vs {
					all.WriteString(k + ": " + v + "\n")
				}
			}
			all.Write(m.Data)
			all.WriteByte('\n')
		})
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
	return func() string {
		require.NoError(t, nc.Flush())
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}
}
