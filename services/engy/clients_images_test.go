package main_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
)

// painted puts a picture into the client's home and gives it as base64.
func (g *guest) painted(name string) string {
	g.t.Helper()
	var b bytes.Buffer
	require.NoError(g.t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 32, 32))))
	g.settings(name, b.String())
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// claudeSeesAPicture reads a file of which the tool's result is no text.
func claudeSeesAPicture(g *guest) {
	claude(g)
	data := g.painted("photo.png")
	r := g.run(`exec claude -p --output-format stream-json --verbose \
		'Look. [[sim tool=Read args={"file_path":"` + filepath.Join(g.home, "photo.png") + `"} tokens=3 record=claude-picture]]' \
		--allowedTools Read </dev/null`)
	require.Zero(g.t, r.code)
	turn := readClaude(g.t, r.stdout)
	require.False(g.t, turn.failed)
	require.Equal(g.t, "Read", turn.tool)
	_, raw := g.kept("claude-picture")
	require.Contains(g.t, raw, "data:image/png;base64,"+data, "the engine is shown what the tool has read")
	g.near(turn.usage, 2)
}

// codexSeesAPicture sends one along with the question.
func codexSeesAPicture(g *guest) {
	codex(g)
	data := g.painted("photo.png")
	r := g.run(`exec codex exec --json --skip-git-repo-check -m kimi-k3 -i photo.png -- \
		'Look. [[sim tokens=3 record=codex-picture]]' </dev/null`)
	require.Zero(g.t, r.code)
	turn := readCodex(g.t, r.stdout)
	require.Empty(g.t, turn.failure)
	_, raw := g.kept("codex-picture")
	require.Contains(g.t, raw, "data:image/png;base64,"+data)
	turn.usage.Model = "kimi-k3"
	require.Equal(g.t, turn.usage.price(g.t), g.settled(g.before))
	require.True(g.t, strings.HasPrefix(turn.text, "Simulated"), turn.text)
}
