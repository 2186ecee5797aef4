package main_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const examplesDir = "../../docs/examples"

// example runs a script with nothing of this machine's settings, and tells whether
// it was content.
func example(t *testing.T, path, url, key string) (out string, content bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", path)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "ENGY_BASE_URL=" + url, "ENGY_API_KEY=" + key}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "%s does not end", path)
	return all.String(), err == nil
}

// Every example holds against the platform as a new user starts it, and none holds
// against anything else.
func TestEveryExampleHolds(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(examplesDir + "/*.sh")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	data := filepath.Join(t.TempDir(), "data")
	_, c := startUp(t, data)
	var kept string // what retention.sh was allowed to leave behind
	t.Run("all", func(t *testing.T) {
		for _, script := range scripts {
			path := absolute(t, script)
			t.Run(filepath.Base(path), func(t *testing.T) {
				t.Parallel()
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				out, ok := example(t, path, c.api, demoKey)
				require.True(t, ok, "%s", out)
				out2, ok := example(t, path, "http://127.0.0.1:1", demoKey)
				require.False(t, ok, "nobody is there: %s", out2)
				if strings.Contains(string(text), "ENGY_API_KEY") {
					out2, ok = example(t, path, c.api, "sk-engy-nobodys-0123456789")
					require.False(t, ok, "nobody's key: %s", out2)
				}
				if filepath.Base(path) == "retention.sh" {
					kept = regexp.MustCompile(`"request_id":"([0-9a-f]{64})"`).FindStringSubmatch(out)[1]
				}
			})
		}
	})
	out, err := verb(t, nil, "reconcile", "--data", data)
	require.NoError(t, err, out)
	require.Contains(t, out, "the ledger adds up")
	list := func() []string {
		out, err := verb(t, nil, "retained", "list", "--data", data)
		require.NoError(t, err, out)
		return regexp.MustCompile(`\b[0-9a-f]{64}\b`).FindAllString(out, -1)
	}
	c.eventually("the record is there", func() bool { return len(list()) > 0 })
	require.Equal(t, []string{kept}, list(), "of all requests of all examples")
}

func TestEveryExampleIsListed(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(examplesDir + "/*.sh")
	require.NoError(t, err)
	var there, listed []string
	for _, path := range scripts {
		there = append(there, filepath.Base(path))
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-n", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	raw, err := os.ReadFile(examplesDir + "/README.md")
	require.NoError(t, err)
	for _, row := range regexp.MustCompile(`(?m)^\| \[(.+)\]\((.+)\) \| \S.*\|$`).FindAllStringSubmatch(string(raw), -1) {
		require.Equal(t, row[1], row[2])
		listed = append(listed, row[2])
	}
	require.ElementsMatch(t, there, listed, "each has a line of its own")
}
