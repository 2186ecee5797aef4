package edge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAHoldIsDoubtfulWhenNobodyCouldRenewIt(t *testing.T) {
	t.Parallel()
	const life = time.Hour
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for name, c := range map[string]struct {
		kept  []time.Time
		begun time.Time
		want  bool
	}{
		"a young job":                        {begun: ago(life / 4)},
		"a young job after a silence":        {kept: []time.Time{ago(life), ago(life / 3)}, begun: ago(life / 4)},
		"an old job that is renewed":         {kept: []time.Time{ago(life / 2), ago(life / 4)}, begun: ago(5 * life)},
		"an old job that nobody renews":      {kept: []time.Time{ago(life)}, begun: ago(life), want: true},
		"an old job, and nobody ever":        {begun: ago(life), want: true},
		"a job from before a silence":        {kept: []time.Time{ago(life), ago(life / 4)}, begun: ago(life / 3), want: true},
		"from before a silence that is past": {kept: []time.Time{ago(2 * life), ago(life), ago(life / 3), ago(0)}, begun: ago(life + life/2), want: true},
		"the first renewal of all":           {kept: []time.Time{ago(life / 4)}, begun: ago(life / 3)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lease{life: life}
			for _, at := range c.kept {
				l.keep(at)
			}
			require.Equal(t, c.want, l.doubtful(c.begun))
		})
	}
}
