package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/services/billing"
)

// archived is a platform whose edge may keep records in a directory.
type archived struct {
	*cluster
	store, identity string
}

func newArchived(t *testing.T) archived {
	t.Helper()
	dir := t.TempDir()
	a := archived{store: "file://" + filepath.Join(dir, "kept"), identity: filepath.Join(dir, "identity")}
	line, err := verb(t, nil, "retained", "key", a.identity)
	require.NoError(t, err, line)
	a.cluster = newCluster(t, shape{edgeEnv: []string{"EDGE_RETAIN_URL=" + a.store, strings.TrimSpace(line)}})
	a.addWorker("WORKER_ZDR=true")
	a.eventually("the second worker has joined", func() bool {
		return strings.Contains(a.workers[1].log.String(), "joining the fleet")
	})
	return a
}

// kept lists the requests of which there is a record.
func (a archived) kept() []string {
	a.t.Helper()
	out, err := verb(a.t, nil, "retained", "list", "--store", a.store)
	require.NoError(a.t, err, out)
	var ids []string
	for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		ids = append(ids, strings.Fields(line)[0])
	}
	return ids
}

// body writes a request of a route.
func routeBody(path, text, provider string, stream bool) string {
	members := fmt.Sprintf(`"model":"glm-5.2","stream":%t`, stream)
	if provider != "" {
		members += `,"provider":` + provider
	}
	if path == "/v1/responses" {
		return `{` + members + `,"max_output_tokens":20,"input":"` + text + `"}`
	}
	return `{` + members + `,"max_tokens":20,"messages":[{"role":"user","content":"` + text + `"}]}`
}

func TestWhatIsKeptIsWhatItsOwnerAllows(t *testing.T) {
	t.Parallel()
	a := newArchived(t)
	account, opted := a.customer("opted-in", "1", billing.KeyOptions{})
	require.NoError(t, a.admin.SetRetain(t.Context(), account.ID, true))
	var want []string
	ask := func(path, key, text, provider string, stream bool) (status int, id string) {
		t.Helper()
		resp := a.do("POST", path, key, strings.NewReader(routeBody(path, text, provider, stream)))
		a.body(resp)
		return resp.StatusCode, resp.Header.Get("X-Engy-Request-Id")
	}
	a.eventually("the edge knows of the account's word", func() bool {
		_, id := ask("/v1/chat/completions", opted, "first", "", false)
		want = append(want, id)
		ids := a.kept()
		if len(ids) == 0 {
			want = nil
		}
		return len(ids) > 0
	})
	want = a.kept()

	for i, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/responses"} {
		for _, stream := range []bool{false, true} {
			text := fmt.Sprintf("remember %d %t", i, stream)
			status, id := ask(path, a.key, text, `{"data_collection":"allow"}`, stream)
			require.Equal(t, 200, status, path)
			want = append(want, id)
			status, id = ask(path, opted, text, "", stream)
			require.Equal(t, 200, status, path)
			want = append(want, id)
			for _, provider := range []string{"", `{"data_collection":"deny"}`, `{"zdr":true}`, `{"data_collection":"allow","zdr":true}`} {
				key := a.key
				if provider != "" {
					key = opted
				}
				status, _ := ask(path, key, "forget", provider, stream)
				require.Equal(t, 200, status, "%s %s", path, provider)
			}
			for _, bad := range []string{`{"data_collection":"Allow"}`, `{"data_collection":"allow","Data_Collection":"deny"}`} {
				status, _ := ask(path, a.key, "forget", bad, stream)
				require.Equal(t, 400, status, "%s %s", path, bad)
			}
		}
	}
	a.eventually("all that may be kept is", func() bool { return len(a.kept()) >= len(want) })
	require.ElementsMatch(t, want, a.kept())

	for _, id := range want {
		out, err := verb(t, nil, "retained", "show", id, "--store", a.store, "--identity", a.identity)
		require.NoError(t, err, out)
		var r struct {
			Request, Account, Outcome string
			Prompt                    struct{ Items []any }
			Answer                    struct{ Text string }
		}
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		require.Equal(t, id, r.Request)
		require.Equal(t, "finished", r.Outcome)
		require.NotEmpty(t, r.Prompt.Items)
		require.NotEmpty(t, r.Answer.Text)
		require.NotContains(t, out, "forget")
	}
	out, err := verb(t, nil, "retained", "erase", want[0], "--store", a.store)
	require.NoError(t, err, out)
	require.NotContains(t, a.kept(), want[0])
	out, err = verb(t, nil, "retained", "show", want[0], "--store", a.store, "--identity", a.identity)
	require.Error(t, err)
	require.Contains(t, out, "no record")

	// Nothing of it can be read in the store itself.
	files, err := filepath.Glob(filepath.Join(strings.TrimPrefix(a.store, "file://"), "*"))
	require.NoError(t, err)
	require.Len(t, files, len(want)-1)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NotContains(t, string(raw), "remember")
	}
}

func TestAnAnswerThatTheClientLeftIsKeptAsFarAsItCame(t *testing.T) {
	t.Parallel()
	a := newArchived(t)
	resp := a.do("POST", "/v1/chat/completions", a.key, strings.NewReader(`{"model":"glm-5.2","stream":true,"max_tokens":1000,
		"provider":{"data_collection":"allow"},"messages":[{"role":"user","content":"go [[sim tokens=500 itl=20ms think=0]]"}]}`))
	id := resp.Header.Get("X-Engy-Request-Id")
	_, err := io.ReadFull(resp.Body, make([]byte, 800))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	a.eventually("the record is there", func() bool { return len(a.kept()) == 1 })
	out, err := verb(t, nil, "retained", "show", id, "--store", a.store, "--identity", a.identity)
	require.NoError(t, err, out)
	require.Contains(t, out, `"outcome": "left"`)
	require.Regexp(t, `"Text": "[^"]`, out)
}

func TestAStoreThatFailsCostsNoAnswer(t *testing.T) {
	t.Parallel()
	a := newArchived(t)
	dir := strings.TrimPrefix(a.store, "file://")
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600)) // a file where the directory was
	resp := a.do("POST", "/v1/chat/completions", a.key, strings.NewReader(routeBody("/v1/chat/completions", "hi", `{"data_collection":"allow"}`, false)))
	require.Equal(t, 200, resp.StatusCode, a.body(resp))
	a.eventually("the edge tells", func() bool { return strings.Contains(a.edge.log.String(), "record not kept") })
	require.NotContains(t, a.edge.log.String(), "hi [[")
}
