package main_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const clientsDoc = "../../docs/clients.md"

// snippet gives the code of a language in a section of the document for users,
// so that what it tells them is what is run here.
func snippet(t *testing.T, heading, language string) string {
	t.Helper()
	raw, err := os.ReadFile(clientsDoc)
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(raw), "\n## "+heading+"\n")
	require.True(t, ok, heading)
	section, _, _ = strings.Cut(section, "\n## ")
	_, code, ok := strings.Cut(section, "\n```"+language+"\n")
	require.True(t, ok, "%s has no %s", heading, language)
	code, _, ok = strings.Cut(code, "\n```\n")
	require.True(t, ok)
	return code + "\n"
}

// here puts this run's address and key in the place of the document's.
func (g *guest) here(code string) string {
	g.t.Helper()
	require.Contains(g.t, code, docAddress)
	return strings.NewReplacer(docAddress, g.api, docKey, g.key).Replace(code)
}

// The document's address is that of `engy up`; its key is nobody's.
const (
	docAddress = "http://127.0.0.1:8080"
	docKey     = "sk-engy-your-key"
)

// settings writes a file of a client below its home.
func (g *guest) settings(path, content string) {
	g.t.Helper()
	path = filepath.Join(g.home, path)
	require.NoError(g.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(g.t, os.WriteFile(path, []byte(content), 0o644))
}

// codex sets Codex up as the document says.
func codex(g *guest) {
	g.settings(".codex/config.toml", g.here(snippet(g.t, "Codex", "toml")))
}

// codexTurn is what `codex exec --json` tells.
type codexTurn struct {
	command, output, text string
	exit                  int
	usage                 spent
	failure               string
}

func readCodex(t *testing.T, stdout string) (turn codexTurn) {
	t.Helper()
	turn.exit = -1
	for line := range strings.Lines(stdout) {
		var e struct {
			Type string
			Item struct {
				Type, Text, Command string
				Output              string `json:"aggregated_output"`
				Exit                *int   `json:"exit_code"`
			}
			Usage struct {
				Input  int64 `json:"input_tokens"`
				Cached int64 `json:"cached_input_tokens"`
				Output int64 `json:"output_tokens"`
			}
			Error struct{ Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e), "%s", line)
		switch {
		case e.Type == "item.completed" && e.Item.Type == "command_execution":
			turn.command, turn.output = e.Item.Command, e.Item.Output
			require.NotNil(t, e.Item.Exit)
			turn.exit = *e.Item.Exit
		case e.Type == "item.completed" && e.Item.Type == "agent_message":
			turn.text = e.Item.Text
		case e.Type == "turn.completed":
			turn.usage = spent{Model: "glm-5.2", Input: e.Usage.Input, Cached: e.Usage.Cached, Output: e.Usage.Output}
		case e.Type == "turn.failed":
			turn.failure = e.Error.Message
		}
	}
	return turn
}

// near compares the ledger with the price of the sum of several answers: each
// was rounded by itself.
func (g *guest) near(sum spent, answers int) {
	g.t.Helper()
	require.InDelta(g.t, int64(sum.price(g.t)), int64(g.settled(g.before)), float64(answers))
}

func codexReadsAFile(g *guest) {
	codex(g)
	r := g.run(snippet(g.t, "Codex", "sh"))
	require.Zero(g.t, r.code)
	require.Contains(g.t, r.stdout, "the parrot is blue")
	require.Positive(g.t, int64(g.settled(g.before)))
}

func codexRunsACommand(g *guest) {
	codex(g)
	r := g.run(`exec codex exec --json --skip-git-repo-check --sandbox workspace-write \
		'Make a file. [[sim tool=exec_command args={"cmd":"echo%20made%20here%20>%20made.txt;%20cat%20made.txt"} echo_result record=codex think=5]]' </dev/null`)
	require.Zero(g.t, r.code)
	turn := readCodex(g.t, r.stdout)
	require.Contains(g.t, turn.command, "made.txt")
	require.Equal(g.t, "made here\n", turn.output)
	require.Zero(g.t, turn.exit)
	made, err := os.ReadFile(filepath.Join(g.home, "made.txt"))
	require.NoError(g.t, err, "the command ran where the client said")
	require.Equal(g.t, "made here\n", string(made))
	require.Contains(g.t, turn.text, "made here", "the result reached the engine, which repeats it")
	sent, _ := g.kept("codex")
	last := sent.Messages[len(sent.Messages)-1]
	require.Equal(g.t, "tool", last.Role)
	require.Contains(g.t, last.Content, "made here")
	g.near(turn.usage, 2)
}

func codexAnswersInAShape(g *guest) {
	codex(g)
	g.settings("schema.json", `{"type":"object","properties":{"days":{"type":"integer"}},"required":["days"],"additionalProperties":false}`)
	r := g.run(`exec codex exec --json --skip-git-repo-check --output-schema schema.json 'How many days?' </dev/null`)
	require.Zero(g.t, r.code)
	turn := readCodex(g.t, r.stdout)
	var shaped struct{ Days *int }
	require.NoError(g.t, json.Unmarshal([]byte(turn.text), &shaped), turn.text)
	require.NotNil(g.t, shaped.Days)
	require.Equal(g.t, turn.usage.price(g.t), g.settled(g.before))
}

func codexMeetsErrors(g *guest) {
	codex(g)
	// By itself it tries five times more, for seven seconds.
	const exec = `codex exec --json --skip-git-repo-check -c model_providers.engy.stream_max_retries=1 `
	for arguments, want := range map[string]string{
		`-m no-such-model hi`:                              "404 Not Found: model 'no-such-model' not found",
		`-m short 'hi'`:                                    "context window of 8192",
		`'go on [[sim tokens=50 itl=5ms cut=20]]'`:         "stream disconnected",
		`-c model_providers.engy.env_key=ENGY_POOR_KEY hi`: "402 Payment Required",
	} {
		r := g.run("exec " + exec + arguments + " </dev/null")
		require.Equal(g.t, 1, r.code, arguments)
		require.Contains(g.t, readCodex(g.t, r.stdout).failure, want, arguments)
	}
	require.Zero(g.t, g.settled(g.before), "none of it cost anything")
}

// claude sets Claude Code up as the document says.
func claude(g *guest) {
	g.settings(".claude/settings.json", g.here(snippet(g.t, "Claude Code", "json")))
}

// claudeTurn is what `claude -p --output-format stream-json` tells.
type claudeTurn struct {
	tool, command, result, thought, text string
	failed                               bool
	usage                                spent
}

func readClaude(t *testing.T, stdout string) (turn claudeTurn) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		var e struct {
			Type    string
			Message struct {
				Content []struct {
					Type, Thinking, Name string
					Input                struct{ Command string }
					Content              any
				}
			}
			Result string
			Failed bool `json:"is_error"`
			// Usage beside it also counts what the beginning of a broken answer
			// promised.
			Models map[string]struct{ InputTokens, CacheReadInputTokens, OutputTokens int64 } `json:"modelUsage"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e), "%s", line)
		for _, block := range e.Message.Content {
			switch block.Type {
			case "thinking":
				turn.thought += block.Thinking
			case "tool_use":
				turn.tool, turn.command = block.Name, block.Input.Command
			case "tool_result":
				turn.result, _ = block.Content.(string)
			}
		}
		if e.Type == "result" {
			turn.text, turn.failed = e.Result, e.Failed
			require.Len(t, e.Models, 1)
			for name, u := range e.Models {
				model, _, _ := strings.Cut(name, "[")
				turn.usage = spent{Model: model, Input: u.InputTokens + u.CacheReadInputTokens, Cached: u.CacheReadInputTokens, Output: u.OutputTokens}
			}
		}
	}
	return turn
}

func claudeReadsAFile(g *guest) {
	claude(g)
	r := g.run(snippet(g.t, "Claude Code", "sh"))
	require.Zero(g.t, r.code)
	require.Equal(g.t, "the parrot is blue\n", r.stdout)
	require.Positive(g.t, int64(g.settled(g.before)))
}

func claudeRunsACommand(g *guest) {
	claude(g)
	r := g.run(`exec claude -p --output-format stream-json --verbose \
		'Make a file. [[sim tool=Bash args={"command":"echo%20made%20here%20>%20made.txt;%20cat%20made.txt"} echo_result record=claude think=5]]' \
		--allowedTools Bash </dev/null`)
	require.Zero(g.t, r.code)
	turn := readClaude(g.t, r.stdout)
	require.Equal(g.t, "Bash", turn.tool)
	require.Contains(g.t, turn.command, "made.txt")
	require.Equal(g.t, "made here", turn.result)
	require.NotEmpty(g.t, turn.thought)
	made, err := os.ReadFile(filepath.Join(g.home, "made.txt"))
	require.NoError(g.t, err, "the command ran where the client said")
	require.Equal(g.t, "made here\n", string(made))
	require.Equal(g.t, "made here", turn.text, "the result reached the engine, which repeats it")
	sent, raw := g.kept("claude")
	roles := make([]string, 0, len(sent.Messages))
	for _, m := range sent.Messages {
		roles = append(roles, m.Role)
	}
	require.Contains(g.t, roles, "tool")
	require.Greater(g.t, len(raw), 40_000, "its instructions and tools reached the engine")
	require.False(g.t, turn.failed)
	g.near(turn.usage, 2)
}

// claudeGoesOn tries what a session of some length needs: two commands at once,
// a tool that is looked up, and an answer of a given shape.
func claudeGoesOn(g *guest) {
	claude(g)
	const print = `exec claude -p --output-format stream-json --verbose `
	for prompt, want := range map[string]string{
		`'[[sim tool=Bash calls=2 args={"command":"echo%20twice"} echo_result]]' --allowedTools Bash`: "twice\ntwice",
		// What it gets back is no text but the name of a tool.
		`'[[sim tool=ToolSearch args={"query":"select:WebFetch","max_results":1} echo_result]]'`: "Tool found: WebFetch",
		`--json-schema '{"type":"object","properties":{"days":{"type":"integer"}},"required":["days"]}' \
			'[[sim tool=StructuredOutput args={"days":3}]]'`: `{"days":3}`,
	} {
		r := g.run(print + prompt + " </dev/null")
		require.Zero(g.t, r.code, prompt)
		turn := readClaude(g.t, r.stdout)
		require.False(g.t, turn.failed, prompt)
		require.Equal(g.t, want, turn.text, prompt)
	}
	require.Positive(g.t, int64(g.settled(g.before)))
}

func claudeMeetsErrors(g *guest) {
	claude(g)
	for arguments, want := range map[string]string{
		`--model no-such-model`: "There's an issue with the selected model (no-such-model)",
		`--model short`:         "Prompt is too long",
	} {
		r := g.run("exec claude -p " + arguments + " hi </dev/null")
		require.Equal(g.t, 1, r.code, arguments)
		require.Contains(g.t, r.stdout, want, arguments)
	}
	g.key = g.poorKey
	claude(g)
	r := g.run("exec claude -p hi </dev/null")
	require.Equal(g.t, 1, r.code)
	require.Contains(g.t, r.stdout, "API Error: 402")
	require.Zero(g.t, g.settled(g.before), "none of it cost anything")
}

// claudeAsksAgain: after an error in the middle of a stream it asks for the
// answer in one piece.
func claudeAsksAgain(g *guest) {
	claude(g)
	r := g.run(`exec claude -p --output-format stream-json --verbose --model glm-5.2 'go on [[sim tokens=100 itl=50ms]]' </dev/null`)
	require.Zero(g.t, r.code)
	turn := readClaude(g.t, r.stdout)
	require.False(g.t, turn.failed)
	require.True(g.t, strings.HasPrefix(turn.text, "Simulated answer"), turn.text)
	require.Equal(g.t, int64(100), turn.usage.Output)
	require.Equal(g.t, turn.usage.price(g.t), g.settled(g.before), "the broken answer is free")
}

// snippets runs the JavaScript and the Go of the document.
func snippets(g *guest) {
	require.NoError(g.t, os.Symlink(absolute(g.t, "clients/node_modules"), filepath.Join(g.home, "node_modules")))
	for _, heading := range []string{"OpenAI SDKs", "Anthropic SDKs", "AI SDK"} {
		g.settings("snippet.mjs", g.here(snippet(g.t, heading, "js")))
		r := g.run("exec node snippet.mjs")
		require.Zero(g.t, r.code, heading)
		require.True(g.t, strings.HasPrefix(r.stdout, "Simulated answer"), heading)
	}
	for _, heading := range []string{"OpenAI SDKs", "Anthropic SDKs"} {
		g.settings("main.go", g.here(snippet(g.t, heading, "go")))
		// From here, so that this module's versions are used.
		ctx, cancel := context.WithTimeout(g.t.Context(), clientPatience)
		run := exec.CommandContext(ctx, "go", "run", filepath.Join(g.home, "main.go"))
		run.Env = append(os.Environ(), "ENGY_API_KEY="+g.key)
		out, err := run.CombinedOutput()
		cancel()
		require.NoError(g.t, err, "%s: %s", heading, out)
		require.True(g.t, strings.HasPrefix(string(out), "Simulated answer"), "%s: %s", heading, out)
	}
	require.Positive(g.t, int64(g.settled(g.before)))
}

// witness stands between a client and an edge, and calls once when the first
// text of an answer is about to pass.
func witness(t *testing.T, edge string, first func()) string {
	t.Helper()
	to, err := url.Parse(edge)
	require.NoError(t, err)
	var once sync.Once
	s := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			r.Body = &watched{ReadCloser: r.Body, first: func() { once.Do(first) }}
			return nil
		},
	})
	t.Cleanup(s.Close)
	return s.URL
}

// watched is a body that is looked at while it is read.
type watched struct {
	io.ReadCloser
	first func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if strings.Contains(string(p[:n]), "text_delta") || strings.Contains(string(p[:n]), "output_text.delta") {
		w.first()
	}
	return n, err
}

// survive kills the only worker in the middle of an answer, when another has
// come: the client is told, and asks again.
func survive(t *testing.T, visit func(g *guest)) {
	t.Helper()
	c := newCluster(t, shape{})
	g := invite(t, c)
	g.api = witness(t, c.api, func() {
		c.second()
		c.workers[0].kill()
	})
	visit(g)
	require.True(t, strings.Contains(c.edge.log.String(), "outcome=failed"), "the first answer broke")
}

func codexAsksAgain(g *guest) {
	codex(g)
	r := g.run(`exec codex exec --json --skip-git-repo-check 'go on [[sim tokens=100 itl=50ms]]' </dev/null`)
	require.Zero(g.t, r.code)
	turn := readCodex(g.t, r.stdout)
	require.Empty(g.t, turn.failure)
	require.True(g.t, strings.HasPrefix(turn.text, "Simulated answer"), turn.text)
	require.Equal(g.t, int64(100), turn.usage.Output)
	require.Equal(g.t, turn.usage.price(g.t), g.settled(g.before), "the broken answer is free")
}
