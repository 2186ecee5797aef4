package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/worker"
)

func TestWhatAModelTakesIsKnownByName(t *testing.T) {
	t.Parallel()
	for _, list := range [][]string{nil, {"image"}, {"audio"}, {"image", "audio"}} {
		require.NoError(t, worker.Config{Region: "eu", Engine: "http://x", Slots: 1, Idle: 1, Modalities: list}.Validate(), list)
	}
	for _, list := range [][]string{{"text"}, {"video"}, {"Image"}, {""}, {"image", "smell"}} {
		err := worker.Config{Region: "eu", Engine: "http://x", Slots: 1, Idle: 1, Modalities: list}.Validate()
		require.True(t, fault.Is(err, fault.Invalid), list)
	}
}

// The engine of these tests tells nothing of pictures.
func TestAWorkerTellsWhatItsEngineDoesNot(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*worker.Config){
		"text":        nil,
		"image":       func(c *worker.Config) { c.Modalities = []string{"image"} },
		"image,audio": func(c *worker.Config) { c.Modalities = []string{"image", "audio", "image"} },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, change)
			w.eventually("the worker has joined", func() bool { return len(w.fleet) == 1 })
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, h := range w.fleet {
				switch want {
				case "text":
					require.Equal(t, []string{"text"}, h.Modalities)
				case "image":
					require.Equal(t, []string{"text", "image"}, h.Modalities)
				default:
					require.Equal(t, []string{"text", "image", "audio"}, h.Modalities)
				}
			}
		})
	}
}
