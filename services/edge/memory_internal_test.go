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
	for range 5 {
		m.take(large)
	}
	for range 4 {
		m.give(large)
		require.Nil(t, m.timer, "not while as much is under way")
	}
	m.take(large)
	m.give(large)
	require.NotNil(t, m.timer, "one that takes long keeps nothing back")
	require.EqualValues(t, 5*large, m.left)
	m.take(large)
	m.tidy()
	require.EqualValues(t, 5*large, m.left, "another has come meanwhile")
	m.give(large)
	m.tidy()
	require.Zero(t, m.left)
	require.EqualValues(t, large, m.held)
}
