package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/services/edge/internal/fleet"
)

func beat(worker, region string, slots, used int, classes ...bus.Class) bus.Heartbeat {
	if classes == nil {
		classes = []bus.Class{bus.Open}
	}
	return bus.Heartbeat{
		Worker: worker, Name: "name-" + worker, Model: "m", Region: region, Classes: classes,
		Slots: slots, InFlight: used, Modalities: []string{"text"}, Features: []string{"tools"},
	}
}

func need() fleet.Need { return fleet.Need{Model: "m", Class: bus.Open} }

func TestATicketStaysAtHomeWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now)
	f.Beat(beat("w1", "eu", 4, 3))
	f.Beat(beat("w2", "us", 100, 0))
	for home, want := range map[string]string{"eu": "eu", "us": "us", "cn": "us"} {
		got, ok := f.Region(need(), home)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	f.Beat(beat("w1", "eu", 4, 4))
	got, _ := f.Region(need(), "eu")
	require.Equal(t, "us", got, "home is full")
	f.Beat(beat("w2", "us", 100, 100))
	f.Beat(beat("w1", "eu", 4, 8))
	got, _ = f.Region(need(), "cn")
	require.Equal(t, "us", got, "all are full, one is fuller")
}

func TestANeedIsMetOrNobodyIsChosen(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now)
	f.Beat(beat("w1", "eu", 4, 0))
	f.Beat(beat("w2", "us", 4, 0, bus.Open, bus.ZDR))
	n := need()
	n.Class = bus.ZDR
	got, ok := f.Region(n, "eu")
	require.True(t, ok)
	require.Equal(t, "us", got)
	n.Allowed = func(r string) bool { return r == "eu" }
	_, ok = f.Region(n, "eu")
	require.False(t, ok)
	_, _, ok = f.Other(n, func(string) bool { return false })
	require.False(t, ok)
	n = need()
	n.Modalities = []string{"image"}
	_, ok = f.Region(n, "eu")
	require.False(t, ok)
	require.Zero(t, f.Free(n))
	require.Equal(t, 8, f.Free(need()))
}

func TestAnotherWorkerIsTheFreestThatIsNotRuledOut(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now)
	f.Beat(beat("w1", "eu", 4, 0))
	f.Beat(beat("w2", "us", 9, 0))
	w, region, ok := f.Other(need(), func(string) bool { return false })
	require.True(t, ok)
	require.Equal(t, []string{"w2", "us"}, []string{w, region})
	w, _, _ = f.Other(need(), func(w string) bool { return w == "w2" })
	require.Equal(t, "w1", w)
}

func TestWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	f := fleet.New(func() time.Time { return now })
	f.Beat(beat("w1", "eu", 4, 0))
	f.Beat(beat("w2", "us", 4, 0))
	f.Beat(beat("w3", "us", 4, 0))
	live, ok := f.Model("m")
	require.True(t, ok)
	require.Equal(t, []string{"eu", "us"}, live.Regions)
	require.Equal(t, []string{"text"}, live.Modalities)
	require.Equal(t, "name-w1", f.Name("m", "w1"))

	f.Left("w1", "m")
	require.Equal(t, "w1", f.Name("m", "w1"))
	f.End("w2")
	f.Beat(beat("w2", "us", 4, 0)) // a heartbeat that was under way
	require.True(t, f.Ended("w2"))
	require.Equal(t, 4, f.Free(need()))

	now = now.Add(bus.HeartbeatLife)
	old := beat("w2", "us", 4, 0)
	f.Beat(old) // the same one again, as a watch that is opened anew gives it
	require.True(t, f.Ended("w2"))
	newer := old
	newer.Time = now
	f.Beat(newer)
	require.False(t, f.Ended("w2"), "it was only out of reach")
	f.End("w2")
	f.Prune()
	_, ok = f.Model("m")
	require.True(t, ok, "at its life's end a heartbeat still counts")
	now = now.Add(time.Millisecond)
	f.Prune()
	_, ok = f.Model("m")
	require.False(t, ok)
	now = now.Add(2 * time.Hour)
	f.Prune()
	require.False(t, f.Ended("w2"))
}

func TestATokenizerIsTheIdlestAtHome(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := fleet.New(func() time.Time { return now })
	counts := func(h bus.Heartbeat) bus.Heartbeat {
		h.Features = append(h.Features, "tokenize")
		return h
	}
	f.Beat(beat("w0", "eu", 100, 0))
	_, ok := f.Tokenizer(need(), "eu")
	require.False(t, ok, "not every engine counts")
	f.Beat(counts(beat("w1", "eu", 4, 4)))
	f.Beat(counts(beat("w2", "us", 100, 0)))
	f.Beat(counts(beat("w3", "us", 4, 1, bus.Open, bus.ZDR)))
	for home, want := range map[string]string{"eu": "w1", "us": "w2", "cn": "w2"} {
		got, ok := f.Tokenizer(need(), home)
		require.True(t, ok)
		require.Equal(t, want, got, home)
	}
	n := need()
	n.Class = bus.ZDR
	got, ok := f.Tokenizer(n, "eu")
	require.True(t, ok)
	require.Equal(t, "w3", got)
	n.Allowed = func(region string) bool { return region == "eu" }
	_, ok = f.Tokenizer(n, "eu")
	require.False(t, ok)
	now = now.Add(bus.HeartbeatLife + 1)
	_, ok = f.Tokenizer(need(), "eu")
	require.False(t, ok, "who is silent is not asked")
}
