package count_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/count"
)

func TestAnExactCountIsTakenWhenItComesInTime(t *testing.T) {
	t.Parallel()
	r := says(strings.Repeat("some words of a prompt ", 200))
	estimate := tokens(r)
	answers := func(n int64, err error) count.Exact {
		return func(context.Context, string, *llm.Request) (int64, error) { return n, err }
	}
	late := func(ctx context.Context, _ string, _ *llm.Request) (int64, error) {
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.Less(t, time.Until(deadline), count.Within)
		<-ctx.Done()
		return estimate + 1, ctx.Err()
	}
	for name, c := range map[string]struct {
		exact count.Exact
		want  int64
	}{
		"in time":       {answers(estimate-50, nil), estimate - 50},
		"nobody there":  {nil, estimate},
		"it cannot":     {answers(estimate-50, errors.New("no")), estimate},
		"too late":      {late, estimate},
		"far too few":   {answers(1, nil), estimate},
		"far too many":  {answers(estimate*10, nil), estimate},
		"less than one": {answers(-5, nil), estimate},
	} {
		var e count.Estimator
		require.Equal(t, c.want, e.Count(t.Context(), "m", r, c.exact), name)
		if c.want != estimate {
			require.Less(t, e.Tokens("m", count.Measure(r)), estimate, "exact counts teach")
		}
	}
	short := says("hi")
	var e count.Estimator
	require.Equal(t, int64(400), e.Count(t.Context(), "m", short, answers(400, nil)), "a template may be long")
	r.Items[0].Parts = append(r.Items[0].Parts, llm.Part{Media: &llm.Media{Kind: "image"}})
	require.Equal(t, tokens(r), e.Count(t.Context(), "m", r, answers(estimate, nil)), "tokenizers do not see images")
}
