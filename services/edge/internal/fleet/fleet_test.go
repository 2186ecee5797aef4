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

// idle is what an edge knows that has no jobs.
func idle(string) (int, bool) { return 0, true }

func need() fleet.Need { return fleet.Need{Model: "m", Class: bus.Open} }

func TestATicketStaysAtHomeWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now, idle)
	f.Beat(beat("w1", "eu", 4, 3))
	f.Beat(beat("w2", "us", 100, 0))
	for home, want := range map[string]string{"eu": "eu", "us": "us", "cn": "us"} {
		got, worker, ok := f.Place(need(), home)
		require.True(t, ok)
		require.Equal(t, want, got)
		require.Empty(t, worker, "any will do")
	}
	f.Beat(beat("w1", "eu", 4, 4))
	got, _, _ := f.Place(need(), "eu")
	require.Equal(t, "us", got, "home is full")
	f.Beat(beat("w2", "us", 100, 100))
	f.Beat(beat("w1", "eu", 4, 8))
	got, _, _ = f.Place(need(), "cn")
	require.Equal(t, "us", got, "all are full, one is fuller")
}

func TestAModelWhoseLastWorkerDiedIsAwayForAMoment(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := fleet.New(func() time.Time { return now }, idle)
	require.False(t, f.Bereft("m"), "nobody ever served it")
	f.Beat(beat("w1", "eu", 4, 0))
	f.Beat(beat("w2", "eu", 4, 0))
	f.End("w1")
	require.False(t, f.Bereft("m"), "another is left")
	f.End("w2")
	f.End("w9")
	require.True(t, f.Bereft("m"))
	require.False(t, f.Bereft("other"))
	f.Beat(beat("w3", "eu", 4, 0))
	require.False(t, f.Bereft("m"), "somebody came")
	f.Left("w3", "m")
	now = now.Add(5 * time.Second)
	require.False(t, f.Bereft("m"), "and left in good order")
	f.Prune()
	f.Beat(beat("w4", "eu", 4, 0))
	f.End("w4")
	require.True(t, f.Bereft("m"))
	now = now.Add(5 * time.Second)
	require.False(t, f.Bereft("m"), "nobody came")
}

func TestANeedIsMetOrNobodyIsChosen(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now, idle)
	f.Beat(beat("w1", "eu", 4, 0))
	f.Beat(beat("w2", "us", 4, 0, bus.Open, bus.ZDR))
	n := need()
	n.Class = bus.ZDR
	got, worker, ok := f.Place(n, "eu")
	require.True(t, ok)
	require.Equal(t, "us", got)
	require.Empty(t, worker)
	n.Allowed = func(r string) bool { return r == "eu" }
	_, _, ok = f.Place(n, "eu")
	require.False(t, ok)
	_, _, ok = f.Other(n, func(string) bool { return false })
	require.False(t, ok)
	n = need()
	n.Modalities = []string{"image"}
	_, _, ok = f.Place(n, "eu")
	require.False(t, ok)
	require.Zero(t, f.Free(n))
	require.Equal(t, 8, f.Free(need()))
}

// seeing, scoring and wide make a worker able to do more than others.
func seeing(h bus.Heartbeat) bus.Heartbeat {
	h.Modalities = append(h.Modalities, "image")
	return h
}

func scoring(h bus.Heartbeat) bus.Heartbeat {
	h.Features = append(h.Features, "score")
	return h
}

func wide(h bus.Heartbeat, window int64) bus.Heartbeat {
	h.Window = window
	return h
}

func TestATicketIsForSomebodyWhereNotEverybodyWillDo(t *testing.T) {
	t.Parallel()
	nobody := func(string) bool { return false }
	for name, c := range map[string]struct {
		change func(*fleet.Need)
		able   func(bus.Heartbeat) bus.Heartbeat
	}{
		"a modality":                {func(n *fleet.Need) { n.Modalities = []string{"image"} }, seeing},
		"a feature":                 {func(n *fleet.Need) { n.Features = []string{"tools", "score"} }, scoring},
		"a window":                  {func(n *fleet.Need) { n.Window = 8193 }, func(h bus.Heartbeat) bus.Heartbeat { return wide(h, 8193) }},
		"a window that is not told": {func(n *fleet.Need) { n.Window = 1 << 40 }, func(h bus.Heartbeat) bus.Heartbeat { return wide(h, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleet.New(time.Now, idle)
			n := need()
			c.change(&n)
			plain := func(worker, region string, slots, used int, classes ...bus.Class) bus.Heartbeat {
				return wide(beat(worker, region, slots, used, classes...), 8192)
			}
			f.Beat(plain("w1", "eu", 100, 0))
			_, _, ok := f.Place(n, "eu")
			require.False(t, ok, "nobody can")
			require.False(t, f.Fits(n, "w1"))

			f.Beat(c.able(plain("w2", "eu", 4, 4)))
			region, worker, ok := f.Place(n, "eu")
			require.True(t, ok)
			require.Equal(t, []string{"eu", "w2"}, []string{region, worker}, "it is busy, and the only one")
			require.True(t, f.Fits(n, "w2"))
			require.Zero(t, f.Free(n))
			_, _, ok = f.Other(n, func(w string) bool { return w == "w2" })
			require.False(t, ok, "no other attempt goes to who cannot")

			// Where all can, anybody may pull.
			f.Beat(c.able(plain("w3", "us", 4, 0)))
			region, worker, _ = f.Place(n, "eu")
			require.Equal(t, []string{"us", ""}, []string{region, worker})
			// Who does not pull there does not count.
			f.Beat(plain("w4", "us", 4, 0, bus.ZDR))
			_, worker, _ = f.Place(n, "us")
			require.Empty(t, worker)
			f.Beat(plain("w5", "us", 4, 0))
			_, worker, _ = f.Place(n, "us")
			require.Equal(t, "w3", worker)
			other, _, _ := f.Other(n, nobody)
			require.Equal(t, "w3", other)

			// What anybody can do is for anybody.
			_, worker, ok = f.Place(need(), "us")
			require.True(t, ok)
			require.Empty(t, worker)
		})
	}
}

func TestNamedTicketsAreSpreadByFreeSlots(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now, idle)
	f.Beat(beat("w0", "eu", 100, 0))
	f.Beat(scoring(beat("w1", "eu", 40, 10)))
	f.Beat(scoring(beat("w2", "eu", 20, 10)))
	f.Beat(scoring(beat("w3", "eu", 20, 25)))
	n := need()
	n.Features = []string{"score"}
	const draws = 4000
	got := map[string]int{}
	for range draws {
		_, worker, ok := f.Place(n, "eu")
		require.True(t, ok)
		got[worker]++
	}
	require.InDelta(t, 3*draws/4, got["w1"], draws/20)
	require.InDelta(t, draws/4, got["w2"], draws/20)
	require.Len(t, got, 2, "a full one waits for nothing")
	for _, h := range []bus.Heartbeat{beat("w1", "eu", 4, 4), beat("w2", "eu", 4, 4), beat("w3", "eu", 4, 4)} {
		f.Beat(scoring(h))
	}
	clear(got)
	for range draws {
		_, worker, _ := f.Place(n, "eu")
		got[worker]++
	}
	for _, id := range []string{"w1", "w2", "w3"} {
		require.InDelta(t, draws/3, got[id], draws/20, "all are full, one is as good as another")
	}
}

func TestTheLargestWindowIsThatOfWhoCanServe(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now, idle)
	f.Beat(wide(beat("w1", "eu", 4, 0), 8192))
	f.Beat(seeing(wide(beat("w2", "us", 4, 0), 4096)))
	f.Beat(wide(beat("w3", "us", 4, 0, bus.ZDR), 1<<20))
	n := need()
	n.Window = 1 << 30 // what is asked for does not matter here
	largest, ok := f.Window(n)
	require.True(t, ok)
	require.Equal(t, int64(8192), largest)
	n.Modalities = []string{"image"}
	largest, _ = f.Window(n)
	require.Equal(t, int64(4096), largest)
	n.Modalities = []string{"audio"}
	_, ok = f.Window(n)
	require.False(t, ok)
	f.Beat(seeing(beat("w4", "us", 4, 0)))
	n.Modalities = []string{"image"}
	largest, ok = f.Window(n)
	require.True(t, ok)
	require.Zero(t, largest, "one does not tell")
}

func TestOfAWorkerThatIsNotKnownNothingSpecialIsBelieved(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now, idle)
	n := need()
	n.Window = 1000
	n.Features = []string{"tools"}
	require.True(t, f.Fits(n, "new"))
	n.Features = []string{"completions", "score"}
	require.False(t, f.Fits(n, "new"))
	n.Features, n.Modalities = nil, []string{"image"}
	require.False(t, f.Fits(n, "new"))
}

func TestAnotherWorkerIsTheFreestThatIsNotRuledOut(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now, idle)
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
	f := fleet.New(func() time.Time { return now }, idle)
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
	f := fleet.New(func() time.Time { return now }, idle)
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

func TestAJobIsSentToTheIdlestWorker(t *testing.T) {
	t.Parallel()
	own := map[string]int{}
	doubted := ""
	f := fleet.New(time.Now, func(worker string) (int, bool) { return own[worker], worker != doubted })
	idlest := func(n fleet.Need, region string) string {
		w, ok := f.Choose(n, region, "")
		require.Equal(t, w != "", ok)
		return w
	}
	require.Empty(t, idlest(need(), "eu"), "nobody is there")
	f.Beat(beat("w1", "eu", 4, 0))
	f.Beat(beat("w2", "eu", 9, 6)) // all six are other edges' jobs
	f.Beat(beat("w3", "us", 99, 0))
	f.Beat(beat("w4", "eu", 0, 3)) // it is leaving
	require.Equal(t, "w1", idlest(need(), "eu"))
	require.Equal(t, "w3", idlest(need(), "us"))
	require.Empty(t, idlest(need(), "cn"))

	// Its own jobs an edge knows better than a heartbeat does.
	own["w1"] = 2
	require.Equal(t, "w1", idlest(need(), "eu"), "half of its slots are in use, and two thirds of the other's")
	own["w1"] = 3
	require.Equal(t, "w2", idlest(need(), "eu"))
	own["w2"] = 3
	require.Equal(t, "w1", idlest(need(), "eu"))
	own["w1"] = 4
	require.Empty(t, idlest(need(), "eu"), "all are full")
	f.Beat(beat("w2", "eu", 9, 6)) // three of the six are ours
	require.Equal(t, "w2", idlest(need(), "eu"))
	own["w2"], own["w1"] = 0, 4
	require.Equal(t, "w2", idlest(need(), "eu"))
	own["w1"] = 0

	// Who declined gets nothing before it has told how it is; who is doubted neither.
	f.Full("w2")
	f.Full("unknown")
	require.Equal(t, "w1", idlest(need(), "eu"))
	doubted = "w1"
	require.Empty(t, idlest(need(), "eu"))
	f.Beat(beat("w2", "eu", 9, 6))
	require.Equal(t, "w2", idlest(need(), "eu"))

	n := need()
	n.Class = bus.ZDR
	require.Empty(t, idlest(n, "eu"))
	n = need()
	n.Modalities = []string{"image"}
	require.Empty(t, idlest(n, "eu"))
	n = need()
	n.Model = "other"
	require.Empty(t, idlest(n, "eu"))
}

func TestWhoIsFullIsNobodysFirstChoice(t *testing.T) {
	t.Parallel()
	f := fleet.New(time.Now, idle)
	f.Beat(beat("w1", "eu", 4, 0))
	f.Beat(beat("w2", "us", 9, 0))
	f.Full("w2")
	require.Equal(t, 4, f.Free(need()))
	w, _, _ := f.Other(need(), func(string) bool { return false })
	require.Equal(t, "w1", w)
	region, _, _ := f.Place(need(), "us")
	require.Equal(t, "eu", region)
	// It is better than none.
	w, _, ok := f.Other(need(), func(w string) bool { return w == "w1" })
	require.True(t, ok)
	require.Equal(t, "w2", w)
	f.Beat(beat("w2", "us", 9, 0))
	require.Equal(t, 13, f.Free(need()))
}
