// Package house_test holds the rules of this house: who may import whom, what
// has only one home, and what is built nowhere. Rules read the source and
// parse it; nothing here asks the go command, whose answer a test cache may
// keep. Every rule is a function over a file tree, so that house_rules_test.go
// can show each of them going red.
package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/engy-ai/engy"

// rule is one thing that holds everywhere. Its check lists what breaks it, each
// with the reason why the rule exists.
type rule struct {
	name  string
	check func(tree) []string
}

func rules() []rule {
	return []rule{
		{"imports point down", importsPointDown},
		{"rooms of a service stand apart", roomsStandApart},
		{"services never import each other", servicesStandApart},
		{"imports with one home stay there", bannedImports},
		{"calls with one home stay there", bannedCalls},
		{"no init functions", noInit},
		{"no mutable package variables", noMutableVars},
		{"no floats near money", noFloats},
		{"no SQL outside sql", noSQL},
		{"no bus subjects outside the bus", noSubjects},
		{"no open ends without a number", noLooseTodos},
		{"every package says what it is", packageDocs},
		{"what is shared is used twice", sharedTwice},
		{"names say something", telling},
		{"files stay short", shortFiles},
		{"modules are in the workspace", modulesListed},
		{"models have a price and a family", modelsPriced},
		{"schemas have examples", schemasShown},
		{"containers fit the code", containersFit},
	}
}

func TestTheHouseKeepsItsRules(t *testing.T) {
	t.Parallel()
	house, err := load(os.DirFS("."))
	require.NoError(t, err)
	require.NotEmpty(t, house.files)
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if broken := r.check(house); len(broken) > 0 {
				slices.Sort(broken)
				require.Fail(t, "rule broken", "%s", strings.Join(broken, "\n"))
			}
		})
	}
}

// tree is the source as read once.
type tree struct {
	fsys  fs.FS
	files []source
}

// source is one parsed Go file.
type source struct {
	path, dir string
	// test is set for _test.go files and for packages that exist for tests.
	test bool
	// generated is set for files that say so in their first comment.
	generated bool
	ast       *ast.File
	fset      *token.FileSet
	lines     int
}

func load(fsys fs.FS) (tree, error) {
	t := tree{fsys: fsys}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipDir(name, d.Name())
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		dir := path.Dir(name)
		t.files = append(t.files, source{
			path: name, dir: dir, ast: parsed, fset: fset,
			test:      strings.HasSuffix(name, "_test.go") || strings.HasSuffix(dir, "test"),
			generated: ast.IsGenerated(parsed),
			lines:     strings.Count(string(text), "\n"),
		})
		return nil
	})
	return t, err
}

func skipDir(name, base string) error {
	hidden := strings.HasPrefix(base, ".") && name != "."
	if hidden || base == "testdata" || base == "node_modules" || base == "bin" {
		return fs.SkipDir
	}
	return nil
}

// code gives the files that are part of the product.
func (t tree) code() []source {
	return slices.DeleteFunc(slices.Clone(t.files), func(f source) bool { return f.test })
}

// imports gives the paths that a file imports, each with its place.
func (f source) imports() map[string]string {
	m := map[string]string{}
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			m[p] = f.at(spec)
		}
	}
	return m
}

func (f source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

// within tells whether a folder is, or is below, one that matches a pattern. A
// star stands for one path element.
func within(dir string, patterns ...string) bool {
	parts := strings.Split(dir, "/")
	for _, p := range patterns {
		n := strings.Count(p, "/") + 1
		if p == "." || len(parts) < n {
			if p == dir {
				return true
			}
			continue
		}
		if ok, err := path.Match(p, strings.Join(parts[:n], "/")); err == nil && ok {
			return true
		}
	}
	return false
}

// ours gives the folder of an import of this repository.
func ours(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// level is a line of the house: a folder, and what it holds, may import what
// has a lower level.
type level struct {
	folder string
	height int
}

// levels is read from the end, so that a folder inside another has its own.
func levels() []level {
	return []level{
		{"schemas", 0},
		{"sql", 0},
		{"pkg/fault", 0},
		{"pkg/money", 0},
		{"pkg/llm", 1},
		{"pkg/videogen", 1},
		{"pkg/catalog", 2},
		{"pkg/pricing", 2},
		{"pkg/dialect", 2},
		{"pkg/bus", 3},
		{"pkg/pg", 3},
		{"pkg/telemetry", 3},
		{"pkg/retain", 3},
		{"pkg/bus/natsembed", 4},
		{"pkg/pg/pglocal", 4},
		{"pkg/bus/bustest", 5},
		{"pkg/pg/pgtest", 5},
		{"pkg/boot", 6},
		{"services/*", 8},
		{"services/*/internal", 7},
		{"services/*/cmd", 9},
		{"services/engy", 10},
		{"services/engy/internal", 9},
	}
}

func heightOf(dir string) (int, bool) {
	all := levels()
	for i := len(all) - 1; i >= 0; i-- {
		if within(dir, all[i].folder) {
			return all[i].height, true
		}
	}
	return 0, false
}

func importsPointDown(t tree) []string {
	var broken []string
	for _, f := range t.code() {
		from, ok := heightOf(f.dir)
		if !ok {
			broken = append(broken, f.path+": this folder has no level; give it one in house_test.go, so that imports keep pointing down")
			continue
		}
		for imported, at := range f.imports() {
			dir, mine := ours(imported)
			if !mine || within(f.dir, "services/*") && within(dir, "services/*") {
				continue // services among themselves have rules of their own
			}
			to, ok := heightOf(dir)
			if !ok || to >= from {
				broken = append(broken, fmt.Sprintf(
					"%s: %s imports %s: arrows point down, or one change moves everything", at, f.dir, dir))
			}
		}
	}
	return broken
}

// joins are the imports between rooms of one service. All other joins are made
// by the service's front door.
func joins() [][2]string {
	return [][2]string{
		{"services/edge/internal/codec", "services/edge/internal/codec"},
		{"services/edge/internal/httpapi", "services/edge/internal/codec"},
		{"services/worker/internal/engine", "services/worker/internal/engine"},
		{"services/worker/internal/runner", "services/worker/internal/engine"},
		{"services/billing/internal/ledger", "services/billing/internal/ledger/dbsqlc"},
		{"services/billing/internal/account", "services/billing/internal/account/dbsqlc"},
		{"services/video/internal/task", "services/video/internal/task/dbsqlc"},
		// The simulator is one HTTP server over small pure rooms, and tokens are
		// what those rooms pass to each other.
		{"services/sim/internal/api", "services/sim/internal"},
		{"services/sim/internal", "services/sim/internal/tokenizer"},
	}
}

func roomsStandApart(t tree) []string {
	var broken []string
	for _, f := range t.code() {
		if !within(f.dir, "services/*/internal") {
			continue
		}
		for imported, at := range f.imports() {
			dir, mine := ours(imported)
			if !mine || !within(dir, "services/*") || serviceOf(dir) != serviceOf(f.dir) {
				continue
			}
			joined := slices.ContainsFunc(joins(), func(j [2]string) bool {
				return within(f.dir, j[0]) && within(dir, j[1])
			})
			if !joined {
				broken = append(broken, fmt.Sprintf(
					"%s: %s imports %s: rooms are joined by the front door, or they cannot be changed alone", at, f.dir, dir))
			}
		}
	}
	return broken
}

func serviceOf(dir string) string {
	parts := strings.Split(dir, "/")
	if len(parts) < 2 || parts[0] != "services" {
		return ""
	}
	return parts[1]
}

func servicesStandApart(t tree) []string {
	var broken []string
	for _, f := range t.files {
		own := serviceOf(f.dir)
		for imported, at := range f.imports() {
			dir, mine := ours(imported)
			other := serviceOf(dir)
			if !mine || other == "" || other == own || own == "engy" {
				continue
			}
			broken = append(broken, fmt.Sprintf(
				"%s: %s imports %s: services meet only on the bus, and only services/engy joins them in one process", at, f.dir, dir))
		}
	}
	return broken
}

// ban keeps imports out of a part of the tree.
type ban struct {
	// in is where the ban holds, everywhere when empty; only are the homes
	// inside it where the import is welcome.
	in, only []string
	prefixes []string
	// code spares test code.
	code   bool
	reason string
}

func bans() []ban {
	programs := []string{"pkg/boot", "services/*/cmd", "services/engy"}
	return []ban{
		{
			only:     []string{"services/edge/internal/httpapi", "services/engy/internal/bench/bare"},
			prefixes: []string{"github.com/gofiber/", "github.com/valyala/fasthttp"},
			reason:   "the web framework has one home, so that it can be replaced and its buffers cannot escape",
		},
		{
			only:     []string{"pkg/bus", "services/engy/internal/bench/bare"},
			prefixes: []string{"github.com/nats-io/nats.go"},
			reason:   "the bus speaks in verbs; subjects, acknowledgement and tracing are its business alone",
		},
		{
			only:     []string{"pkg/bus/natsembed", "pkg/bus/bustest"},
			prefixes: []string{"github.com/nats-io/nats-server"},
			reason:   "a bus server is started in one place",
		},
		{
			only:     []string{"pkg/retain"},
			prefixes: []string{"gocloud.dev", "filippo.io/age"},
			reason:   "content rests in one place, sealed, and nowhere by accident",
		},
		{
			only: []string{
				"pkg/pg", "services/billing/internal/ledger", "services/billing/internal/account",
				"services/video/internal/task",
			},
			prefixes: []string{"github.com/jackc/pgx", "database/sql", "github.com/lib/pq"},
			reason:   "only the stores talk to the database",
		},
		{
			only:     []string{"pkg/pg"},
			prefixes: []string{"github.com/pressly/goose"},
			reason:   "migrations are applied in one way",
		},
		{
			only:     []string{"pkg/telemetry"},
			prefixes: []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/contrib"},
			reason:   "the telemetry SDK is set up in one place; its API is free for all",
		},
		{
			code: true,
			prefixes: []string{
				"testing", "github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid",
				"github.com/santhosh-tekuri/jsonschema",
			},
			reason: "test code stays out of programs",
		},
		{
			only: programs, code: true,
			prefixes: []string{"flag", "os/signal", "github.com/caarlos0/env"},
			reason:   "a program reads its surroundings once, at its start, and hands values down",
		},
		{
			in: []string{"pkg", "services"}, only: []string{"services/*/cmd", "services/engy", "pkg/boot"},
			prefixes: []string{module + "/pkg/boot"},
			reason:   "start-up is for programs; what it makes is handed in",
		},
		{
			in: []string{"services/edge/internal/codec"}, code: true,
			prefixes: []string{module + "/pkg/bus", module + "/pkg/telemetry", "log", "database"},
			reason:   "a codec is pure: bytes in, values out, and back",
		},
		{
			in: []string{"services"}, only: []string{"services/billing", "services/video", "services/engy"},
			prefixes: []string{module + "/pkg/pg", module + "/sql"},
			reason:   "only the owners of money and tasks open the database",
		},
	}
}

func bannedImports(t tree) []string {
	var broken []string
	for _, b := range bans() {
		for _, f := range t.files {
			if b.code && f.test || len(b.in) > 0 && !within(f.dir, b.in...) || within(f.dir, b.only...) {
				continue
			}
			for imported, at := range f.imports() {
				if slices.ContainsFunc(b.prefixes, func(p string) bool { return hasPathPrefix(imported, p) }) {
					broken = append(broken, fmt.Sprintf("%s: %s imports %s: %s", at, f.dir, imported, b.reason))
				}
			}
		}
	}
	return broken
}

// hasPathPrefix compares whole path elements, so that "flag" is not a prefix
// of "flagship"; a prefix that ends in a slash takes everything below.
func hasPathPrefix(imported, prefix string) bool {
	rest, ok := strings.CutPrefix(imported, prefix)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(prefix, "/"))
}
