package auth_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/edge/internal/auth"
)

func hash(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

func TestAKeyIsKnownUntilItIsTakenAway(t *testing.T) {
	t.Parallel()
	k := auth.New()
	k.Change(hash("sk-engy-one"), &bus.Principal{Account: "a"})
	p, err := k.Check("sk-engy-one")
	require.NoError(t, err)
	require.Equal(t, "a", p.Account)
	k.Change(hash("sk-engy-one"), nil)
	_, err = k.Check("sk-engy-one")
	require.True(t, fault.Is(err, fault.Unauthorized))
}

func TestNoBadKeyIsTakenOrShown(t *testing.T) {
	t.Parallel()
	k := auth.New()
	k.Change(hash("agt-engy-one"), &bus.Principal{})
	k.Change("zz", &bus.Principal{})
	k.Change("", &bus.Principal{})
	for _, secret := range []string{"", "agt-engy-one", "sk-engy-WRONG-0123456789", "sk-engy-" + strings.Repeat("x", 1<<20), "sk-engy-\r\n"} {
		_, err := k.Check(secret)
		require.True(t, fault.Is(err, fault.Unauthorized))
		require.NotContains(t, fmt.Sprint(err), "WRONG")
	}
}

func TestAnEmptyAccountIsKnown(t *testing.T) {
	t.Parallel()
	k := auth.New()
	require.False(t, k.Empty("a"))
	k.Funds(bus.Funds{Account: "a", Empty: true})
	require.True(t, k.Empty("a"))
	k.Funds(bus.Funds{Account: "a"})
	require.False(t, k.Empty("a"))
}
