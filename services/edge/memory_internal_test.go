package edge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryIsGivenBackWhenLargeRequestsAreOver(t *testing.T) {
	t.Parallel()
	var m memory
	t.Cleanup(m.close)
	const small, large = LargeBytes - 1, TidyBytes / 4
	m.take(small)
	m.give(small)
	require.Zero(t, m.left, "small ones do not count")
	for range 4 {
		m.take(large)
	}
	for range 3 {
		m.give(large)
		require.Nil(t, m.timer, "not while one is under way")
	}
	m.give(large)
	require.NotNil(t, m.timer)
	require.EqualValues(t, TidyBytes, m.left)
	m.take(large)
	m.tidy()
	require.EqualValues(t, TidyBytes, m.left, "another has come meanwhile")
	m.give(large)
	m.tidy()
	require.Zero(t, m.left)
	require.Zero(t, m.held)
}
