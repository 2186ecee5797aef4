package house_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// proof is a small tree with one offence, and words of the message that the
// rule must give for it.
type proof struct {
	rule  string
	files map[string]string
	want  string
}

// goFile is a file of a package with these imports and this body.
func goFile(name, body string, imports ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "// Package %s is an example.\npackage %s\n", name, name)
	for _, i := range imports {
		fmt.Fprintf(&b, "import _ %q\n", i)
	}
	return b.String() + body
}

func one(path, text string) map[string]string { return map[string]string{path: text} }

func importProofs() []proof {
	return []proof{
		{"imports point down", one("pkg/fault/f.go", goFile("fault", "", module+"/pkg/money")), "arrows point down"},
		{"imports point down", one("pkg/pricing/p.go", goFile("pricing", "", module+"/pkg/catalog")), "arrows point down"},
		{"imports point down", one("pkg/bus/b.go", goFile("bus", "", module+"/pkg/telemetry")), "arrows point down"},
		{"imports point down", one("pkg/llm/l.go", goFile("llm", "", module+"/services/edge")), "arrows point down"},
		{"imports point down", one("pkg/newcomer/n.go", goFile("newcomer", "")), "has no level"},
		{
			"rooms of a service stand apart",
			one("services/edge/internal/admit/a.go", goFile("admit", "", module+"/services/edge/internal/offer")),
			"joined by the front door",
		},
		{
			"rooms of a service stand apart",
			one("services/edge/internal/codec/c.go", goFile("codec", "", module+"/services/edge/internal/httpapi")),
			"joined by the front door",
		},
		{
			"services never import each other",
			one("services/edge/edge.go", goFile("edge", "", module+"/services/billing")),
			"meet only on the bus",
		},
		{
			"services never import each other",
			one("services/edge/edge_test.go", goFile("edge", "", module+"/services/worker")),
			"meet only on the bus",
		},
		ban1("services/edge/edge.go", "github.com/gofiber/fiber/v2", "web framework has one home"),
		ban1("services/edge/e.go", "gocloud.dev/blob", "content rests in one place"),
		ban1("services/edge/internal/codec/c.go", "github.com/valyala/fasthttp", "web framework has one home"),
		ban1("services/worker/worker.go", "github.com/nats-io/nats.go/jetstream", "bus speaks in verbs"),
		ban1("services/engy/main.go", "github.com/nats-io/nats-server/v2/server", "started in one place"),
		ban1("services/billing/billing.go", "github.com/jackc/pgx/v5/pgxpool", "only the stores"),
		ban1("services/edge/edge.go", "database/sql", "only the stores"),
		ban1("services/billing/internal/ledger/l.go", "github.com/pressly/goose/v3", "applied in one way"),
		ban1("pkg/bus/b.go", "go.opentelemetry.io/otel/sdk/trace", "set up in one place"),
		ban1("pkg/bus/b.go", "testing", "test code stays out"),
		ban1("pkg/bus/b.go", "github.com/stretchr/testify/require", "test code stays out"),
		ban1("pkg/bus/b.go", "go.uber.org/goleak", "test code stays out"),
		ban1("pkg/bus/b.go", "pgregory.net/rapid", "test code stays out"),
		ban1("services/edge/config.go", "flag", "reads its surroundings once"),
		ban1("services/edge/config.go", "os/signal", "reads its surroundings once"),
		ban1("services/edge/config.go", "github.com/caarlos0/env/v11", "reads its surroundings once"),
		ban1("services/edge/edge.go", module+"/pkg/boot", "start-up is for programs"),
		ban1("services/edge/internal/codec/openai/o.go", module+"/pkg/bus", "a codec is pure"),
		ban1("services/edge/internal/codec/openai/o.go", "log/slog", "a codec is pure"),
		ban1("services/worker/worker.go", module+"/pkg/pg", "owners of money and tasks"),
	}
}

func ban1(path, imported, want string) proof {
	return proof{"imports with one home stay there", one(path, goFile("x", "", imported)), want}
}

func body(rule, path, text, want string) proof {
	return proof{rule, one(path, goFile("x", text)), want}
}

func codeProofs() []proof {
	calls, vars, sql := "calls with one home stay there", "no mutable package variables", "no SQL outside sql"
	return []proof{
		body(calls, "services/edge/e.go", "var _ = os.Getenv(`A`)\n", "reads its surroundings once"),
		body(calls, "pkg/pg/p.go", "var _, _ = os.LookupEnv(`A`)\n", "reads its surroundings once"),
		body(calls, "pkg/bus/b.go", "var _ = context.Background()\n", "cannot be cancelled"),
		body(calls, "services/edge/e.go", "var _ = context.TODO()\n", "cannot be cancelled"),
		body(calls, "services/engy/e.go", "func f() { time.Sleep(1) }\n", "hides what is waited for"),
		body(calls, "services/edge/internal/admit/a.go", "var _ = http.StatusNotFound\n", "only at the rim"),
		body(calls, "services/billing/b.go", "var _ = http.StatusText(1)\n", "only at the rim"),
		body("no init functions", "pkg/bus/b.go", "func init() {}\n", "runs unasked"),
		body(vars, "pkg/bus/b.go", "var count int\n", "state of a package"),
		body(vars, "pkg/bus/b.go", "var table = map[string]int{}\n", "state of a package"),
		body(vars, "pkg/bus/b.go", "var a, b = errors.New(`x`), 1\n", "state of a package"),
		body(vars, "pkg/bus/b.go", "var s = new(sync.Mutex)\n", "state of a package"),
		body("no floats near money", "pkg/money/m.go", "type x float64\n", "lose micro-dollars"),
		body("no floats near money", "pkg/pricing/p.go", "var _ = float32(1)\n", "lose micro-dollars"),
		body("no floats near money", "services/billing/internal/ledger/l.go", "func f(float64) {}\n", "lose micro-dollars"),
		body(sql, "services/billing/b.go", "const q = `SELECT a FROM b`\n", "SQL text lives in sql/"),
		body(sql, "services/billing/b.go", "const q = `\n  INSERT INTO a VALUES (1)`\n", "SQL text lives in sql/"),
		body(sql, "services/billing/b.go", "const q = `UPDATE a SET b = 1`\n", "SQL text lives in sql/"),
		body(sql, "services/billing/b.go", "const q = `delete from a where b = $1`\n", "SQL text lives in sql/"),
		body(sql, "services/billing/b.go", "const q = `CREATE TABLE a ()`\n", "SQL text lives in sql/"),
		body(sql, "pkg/pg/p.go", "const q = `SELECT a FROM accounts`\n", "SQL text lives in sql/"),
		body("no bus subjects outside the bus", "services/edge/e.go", "const s = `jobs.v1`\n", "one spelling"),
		body("no bus subjects outside the bus", "services/edge/e_test.go", "const s = `usage.v1.>`\n", "one spelling"),
		body("no open ends without a number", "pkg/bus/b.go", "// TODO: later\n", "has a number"),
		body("no open ends without a number", "pkg/bus/b.go", "// FIXME(#3) now\n", "has a number"),
		{"every package says what it is", one("pkg/bus/b.go", "package bus\n"), "has no doc sentence"},
		{"every package says what it is", one("pkg/bus/b.go", "// bus is.\npackage bus\n"), "has no doc sentence"},
		{"every package says what it is", one("services/edge/cmd/edge/main.go", "package main\n"), "Command edge"},
		{
			"what is shared is used twice",
			map[string]string{
				"pkg/bus/b.go": goFile("bus", ""), "pkg/bus/b_test.go": goFile("bus_test", "", module+"/pkg/bus"),
				"services/edge/e.go": goFile("edge", "", module+"/pkg/bus"),
			},
			"1 importers",
		},
		body("names say something", "pkg/bus/util.go", "", "says nothing"),
		body("names say something", "pkg/bus/helpers_test.go", "", "says nothing"),
		body("names say something", "pkg/common/c.go", "", "says nothing"),
		body("files stay short", "pkg/bus/b.go", strings.Repeat("//\n", linesMax), "holds two subjects"),
	}
}

const (
	goodModel  = `{"models":[{"id":"m","created":1,"owned_by":"o","kind":"text","family":"kimi-k3","input_modalities":["text"],"output_modalities":["text"],"window":9,"max_output":9}]}`
	goodPrice  = `{"version":"v","rates":[{"model":"m","unit":"token","input":1,"output":1}]}`
	otherPrice = `{"version":"v","rates":[{"model":"n","unit":"token","input":1,"output":1}]}`
	wrongUnit  = `{"version":"v","rates":[{"model":"m","unit":"second","input":1,"output":1}]}`
)

func dataProofs() []proof {
	models, shown, listed := "models have a price and a family", "schemas have examples", "modules are in the workspace"
	work := "go 1.26.0\n\nuse (\n\t.\n\t./services/edge\n)\n"
	priced := func(models, rates string) map[string]string {
		return map[string]string{"pkg/catalog/models.json": models, "pkg/pricing/rates.json": rates}
	}
	strange := priced(goodModel, goodPrice)
	strange["pkg/dialect/d.go"] = goFile("dialect", "const a = `glm-5.3`\n")
	return []proof{
		{models, priced(goodModel, otherPrice), "has no price per token"},
		{models, priced(goodModel, otherPrice), "n: priced, but not in the catalogue"},
		{models, priced(goodModel, wrongUnit), "has no price per token"},
		{models, priced(strings.Replace(goodModel, "kimi-k3", "kimi-k9", 1), goodPrice), `family "kimi-k9"`},
		{models, priced(goodModel, `{"version":"v","rates":[{"model":"m","unit":"token","input":1}]}`), "output is missing"},
		{models, strange, "pkg/dialect does not know the family"},
		{models, one("pkg/catalog/models.json", goodModel), "cannot be read"},
		{shown, one("go.work", work), "no schemas"},
		{shown, map[string]string{"schemas/bus/a.v1.json": "{}", "schemas/bus/examples/a.v1.good-x.json": "{}"}, "has no bad example"},
		{shown, map[string]string{"schemas/bus/a.v1.json": "{}", "schemas/bus/examples/a.v1.bad-x.json": "{}"}, "has no good example"},
		{listed, map[string]string{"go.work": work, "go.mod": "go 1.26.0\n", "services/sim/go.mod": "go 1.26.0\n"}, "services/sim/go.mod: not in go.work"},
		{listed, map[string]string{"go.work": work, "go.mod": "go 1.26.0\n", "services/edge/go.mod": "go 1.25\n"}, "one version of Go"},
		{listed, one("go.mod", "go 1.26.0\n"), "go.work: cannot be read"},
	}
}

func deployProofs() []proof {
	const rule = "containers fit the code"
	edge := func(compose string) map[string]string {
		return map[string]string{
			"docker-compose.yml":             compose,
			"Dockerfile":                     "FROM scratch\n",
			"services/edge/cmd/edge/main.go": goFile("main", ""),
			"services/edge/config.go":        goFile("edge", "type C struct { A string `env:\"LISTEN\"` }\n"),
		}
	}
	return []proof{
		{rule, one("go.mod", ""), "cannot be read"},
		{rule, one("docker-compose.yml", "services: ["), "docker-compose.yml: yaml"},
		{rule, edge("services: {e: {build: {dockerfile: Dockerfile, args: {SERVICE: edge}}, environment: {EDGE_LISTN: x}}}"), "sets EDGE_LISTN"},
		{rule, edge("services: {e: {build: {dockerfile: Dockerfile, args: {SERVICE: edge}}, environment: {OTHER_LISTEN: x}}}"), "sets OTHER_LISTEN"},
		{rule, edge("services: {e: {build: {dockerfile: Dockerfile, args: {SERVICE: egde}}}}"), "no program in services/egde/cmd/egde"},
		{rule, edge("services: {e: {build: {dockerfile: Nowhere, args: {SERVICE: edge}}}}"), `built by "Nowhere"`},
		{rule, edge("services: {e: {image: x, depends_on: {f: {}}}}"), "waits for f"},
		{rule, edge("services: {e: {image: x, volumes: [\"./deploy/x:/x\", \"data:/data\"]}}"), "mounts ./deploy/x"},
	}
}

func TestEveryRuleGoesRedWithItsReason(t *testing.T) {
	t.Parallel()
	checks, proven := map[string]func(tree) []string{}, map[string]bool{}
	for _, r := range rules() {
		checks[r.name] = r.check
	}
	for i, p := range slices.Concat(importProofs(), codeProofs(), dataProofs(), deployProofs()) {
		proven[p.rule] = true
		check := checks[p.rule]
		require.NotNil(t, check, "no rule is called %q", p.rule)
		t.Run(fmt.Sprintf("%d %s", i, p.rule), func(t *testing.T) {
			t.Parallel()
			broken := strings.Join(check(plant(t, p.files)), "\n")
			require.Contains(t, broken, p.want)
		})
	}
	for _, r := range rules() {
		require.True(t, proven[r.name], "nothing shows that the rule %q can fail", r.name)
	}
}

// A rule that is always red would pass the test above, so a tree that keeps
// every rule must pass all of them, near misses included.
func TestATidyTreeBreaksNoRule(t *testing.T) {
	t.Parallel()
	use := func(name string) string {
		return goFile(name, "", module+"/pkg/bus", module+"/pkg/catalog", module+"/pkg/pricing", module+"/pkg/pg")
	}
	tidy := plant(t, map[string]string{
		"go.work":                 "go 1.26.0\n\nuse (\n\t.\n\t./services/edge\n)\n",
		"go.mod":                  "module m\n\ngo 1.26.0\n",
		"services/edge/go.mod":    "module e\n\ngo 1.26.0\n",
		"pkg/catalog/models.json": goodModel,
		"pkg/catalog/c.go":        goFile("catalog", ""),
		"pkg/pricing/rates.json":  goodPrice,
		"pkg/pricing/p.go":        goFile("pricing", ""),
		"pkg/pg/pg.go":            goFile("pg", "const q = `CREATE DATABASE x`\n", "github.com/jackc/pgx/v5"),
		"pkg/bus/bus.go": goFile("bus", "const jobs = `jobs.v1`\nvar ErrGone = errors.New(`gone`)\nvar _ I = (*T)(nil)\n"+
			"// names is read-only.\nvar names = []string{`a`}\nvar word = regexp.MustCompile(`a`)\nvar files embed.FS\n"+
			"func f() error { return fmt.Errorf(`delete from %s: gone`) }\n// TODO(#7): later.\n", "github.com/nats-io/nats.go"),
		"pkg/bus/bus_test.go":                          goFile("bus_test", "func x() { time.Sleep(1); context.Background() }\n", "testing"),
		"schemas/bus/a.v1.json":                        "{}",
		"schemas/bus/examples/a.v1.good-x.json":        "{}",
		"schemas/bus/examples/a.v1.bad-x.json":         "{}",
		"services/billing/b.go":                        use("billing"),
		"services/engy/main.go":                        "// Command engy is an example.\npackage main\nimport _ \"" + module + "/services/billing\"\nimport _ \"" + module + "/services/edge\"\nvar _ = context.Background()\n",
		"services/engy/main_test.go":                   use("main"),
		"services/edge/edge.go":                        goFile("edge", "", module+"/services/edge/internal/codec", module+"/pkg/bus"),
		"services/edge/internal/codec/codec.go":        goFile("codec", "const a = `a.v1.json`\n", module+"/services/edge/internal/codec/openai"),
		"services/edge/internal/codec/openai/o.go":     goFile("openai", "", "net/http"),
		"services/edge/internal/httpapi/h.go":          goFile("httpapi", "", "github.com/gofiber/fiber/v2"),
		"services/billing/internal/ledger/l.go":        goFile("ledger", "", "github.com/jackc/pgx/v5"),
		"services/billing/internal/ledger/db/q.sql.go": "// Code generated by sqlc. DO NOT EDIT.\n\npackage db\nconst q = `SELECT a FROM b`\n",
		"services/edge/testdata/broken.go":             "this is not Go",
		"services/edge/cmd/edge/main.go":               "// Command edge is an example.\npackage main\nfunc main() { boot.Lookup(`NATS_URL`) }\n",
		"services/edge/config.go":                      goFile("edge", "type C struct { A string `env:\"LISTEN\"` }\n"),
		"Dockerfile":                                   "FROM scratch\n",
		"docker-compose.yml": "services: {e: {build: {dockerfile: Dockerfile, args: {SERVICE: edge}}, environment: {EDGE_LISTEN: x, NATS_URL: x}," +
			" volumes: [\"data:/data\"], depends_on: {f: {}}}, f: {image: x}}\nvolumes: {data: }\n",
	})
	for _, r := range rules() {
		require.Empty(t, r.check(tidy), r.name)
	}
}

// plant writes files into a folder of the test and reads them as a tree.
func plant(t *testing.T, files map[string]string) tree {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		at := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
	}
	planted, err := load(os.DirFS(root))
	require.NoError(t, err)
	return planted
}
