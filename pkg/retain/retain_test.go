package retain_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/pkg/retain"
)

const marker = "the-marker-of-this-test"

// id is a request's id of an instant.
func id(at time.Time, n int) string { return fmt.Sprintf("%012x%052x", at.UnixMilli(), n) }

func record(request string) retain.Record {
	return retain.Record{
		Request: request, Account: "acct", Key: "key", Model: "glm-5.2", Route: "POST /v1/chat/completions",
		Time: time.UnixMilli(1_790_000_000_000).UTC(), Outcome: "finished", Tokens: llm.Usage{Prompt: 3, Completion: 2},
		Prompt: json.RawMessage(`{"items":[{"text":"` + marker + `"}]}`),
		Answer: &llm.Response{Text: marker, Finish: llm.Stop},
	}
}

func open(t *testing.T, at string) (s *retain.Store, identity string) {
	t.Helper()
	identity, recipient, err := retain.NewIdentity()
	require.NoError(t, err)
	again, err := retain.Recipient(identity + "\n")
	require.NoError(t, err)
	require.Equal(t, recipient, again)
	s, err = retain.Open(t.Context(), at, recipient)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, identity
}

// stores are the kinds of object store, each empty.
func stores(t *testing.T) map[string]string {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("kept"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	return map[string]string{
		"a directory": "file://" + filepath.Join(t.TempDir(), "new", "kept"),
		"S3":          "s3://kept?region=us-east-1&use_path_style=true&endpoint=" + server.URL,
	}
}

func list(t *testing.T, s *retain.Store) (requests []string) {
	t.Helper()
	require.NoError(t, s.List(t.Context(), func(e retain.Entry) error {
		require.Positive(t, e.Bytes)
		requests = append(requests, e.Request)
		return nil
	}))
	return requests
}

func TestARecordIsKeptShownAndErased(t *testing.T) {
	for name, at := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s, identity := open(t, at)
			now := time.Now()
			first, second := id(now.Add(-time.Hour), 1), id(now, 2)
			for _, r := range []string{second, first, first} {
				require.NoError(t, s.Keep(t.Context(), record(r)))
			}
			require.Equal(t, []string{first, second}, list(t, s), "oldest first, each once")
			got, err := s.Show(t.Context(), first, identity)
			require.NoError(t, err)
			require.Equal(t, record(first), got)

			other, _, err := retain.NewIdentity()
			require.NoError(t, err)
			_, err = s.Show(t.Context(), first, other)
			require.True(t, fault.Is(err, fault.Forbidden), err)
			_, err = s.Show(t.Context(), first, "AGE-SECRET-KEY-1X")
			require.True(t, fault.Is(err, fault.Invalid), err)

			require.NoError(t, s.Erase(t.Context(), first))
			require.Equal(t, []string{second}, list(t, s))
			for _, gone := range []string{first, "", "..", "../" + first, strings.ToUpper(first), first + ".age", marker} {
				require.True(t, fault.Is(s.Erase(t.Context(), gone), fault.NotFound), gone)
				_, err = s.Show(t.Context(), gone, identity)
				require.True(t, fault.Is(err, fault.NotFound), gone)
			}
		})
	}
}

func TestRecordsExpireByTheTimeOfTheirRequest(t *testing.T) {
	for name, at := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, at)
			now := time.Now()
			for n := range 5 {
				require.NoError(t, s.Keep(t.Context(), record(id(now.Add(-time.Duration(n)*time.Hour), n))))
			}
			n, err := s.Expire(t.Context(), now.Add(-90*time.Minute))
			require.NoError(t, err)
			require.Equal(t, 3, n)
			require.Len(t, list(t, s), 2)
			n, err = s.Expire(t.Context(), now.Add(-90*time.Minute))
			require.NoError(t, err)
			require.Zero(t, n)
		})
	}
}

func TestNothingCanBeReadWithoutTheOperatorsKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := open(t, "file://"+dir)
	require.NoError(t, s.Keep(t.Context(), record(id(time.Now(), 1))))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "one file a record, nothing half-written")
	raw, err := os.ReadFile(filepath.Join(dir, files[0].Name()))
	require.NoError(t, err)
	require.NotContains(t, string(raw), marker)
	require.NotContains(t, string(raw), "acct")
	require.NotContains(t, fmt.Sprintf("%v %+v %s", record("r"), record("r"), record("r")), marker)

	// What is not ours is let be.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("x"), 0o600))
	require.Len(t, list(t, s), 1)
}

func TestBadSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][2]string{
		"no URL":           {"kept", ""},
		"nothing":          {"", ""},
		"a scheme unknown": {"ftp://host/kept", ""},
		"a bad key":        {"file://" + t.TempDir(), "age1nothing"},
		"a secret key":     {"file://" + t.TempDir(), "AGE-SECRET-KEY-1X"},
	} {
		_, err := retain.Open(t.Context(), c[0], c[1])
		require.Error(t, err, name)
	}
	s, err := retain.Open(t.Context(), "file://"+t.TempDir(), "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.Error(t, s.Keep(t.Context(), record(id(time.Now(), 1))), "who has no key can only read")
	sealing, _ := open(t, "file://"+t.TempDir())
	require.Error(t, sealing.Keep(t.Context(), record("not-an-id")))
}
