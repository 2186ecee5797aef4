package house_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/engy-ai/engy/pkg/catalog"
	"github.com/engy-ai/engy/pkg/pricing"
)

// lone is a call that belongs to few places of the product's code. A star at
// the end of a name stands for any ending.
type lone struct {
	calls, only []string
	reason      string
}

func lones() []lone {
	programs := []string{"pkg/boot", "services/*/cmd", "services/engy"}
	return []lone{
		{
			calls:  []string{"os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "os.Args", "os.Exit"},
			only:   programs,
			reason: "a program reads its surroundings once, at its start, and hands values down",
		},
		{
			calls: []string{"context.Background", "context.TODO"}, only: programs,
			reason: "a context made below the start cannot be cancelled from it",
		},
		{
			calls:  []string{"time.Sleep"},
			reason: "a sleep cannot be cancelled and hides what is waited for",
		},
		{
			calls: []string{"http.Status*"},
			// Engines and the simulator speak somebody else's wire; boot answers
			// whether the process lives.
			only: []string{
				"services/edge/internal/codec", "services/edge/internal/httpapi", "services/worker/internal/engine",
				"services/video/internal/callback", "services/sim", "services/engy", "pkg/boot",
			},
			reason: "a fault has a code inside and a status only at the rim, where the protocol is known",
		},
	}
}

func (l lone) names(call string) bool {
	return slices.ContainsFunc(l.calls, func(c string) bool {
		start, open := strings.CutSuffix(c, "*")
		return c == call || open && strings.HasPrefix(call, start)
	})
}

func bannedCalls(t tree) []string {
	var broken []string
	for _, f := range t.code() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			name := pkg.Name + "." + sel.Sel.Name
			for _, l := range lones() {
				if l.names(name) && !within(f.dir, l.only...) {
					broken = append(broken, fmt.Sprintf("%s: %s: %s", f.at(n), name, l.reason))
				}
			}
			return true
		})
	}
	return broken
}

func noInit(t tree) []string {
	var broken []string
	for _, f := range t.files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				broken = append(broken, f.at(fn)+": init runs unasked and in an order that nobody sees")
			}
		}
	}
	return broken
}

// makers are calls whose results nobody changes.
func makers() []string {
	return []string{"errors.New", "fault.New", "fault.At", "regexp.MustCompile"}
}

func noMutableVars(t tree) []string {
	var broken []string
	for _, f := range t.code() {
		if f.generated {
			continue
		}
		for _, d := range f.ast.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR {
				continue
			}
			for _, s := range decl.Specs {
				spec, ok := s.(*ast.ValueSpec)
				if ok && !harmless(spec, decl.Doc, spec.Doc, spec.Comment) {
					broken = append(broken, fmt.Sprintf(
						"%s: var %s: state of a package is shared by everyone and reset by nobody; a table that is never written says // read-only",
						f.at(spec), spec.Names[0].Name))
				}
			}
		}
	}
	return broken
}

func harmless(spec *ast.ValueSpec, comments ...*ast.CommentGroup) bool {
	for _, group := range comments {
		if group == nil {
			continue
		}
		for _, c := range group.List {
			if strings.Contains(c.Text, "read-only") {
				return true
			}
		}
	}
	if spec.Names[0].Name == "_" {
		return true
	}
	if typ, ok := spec.Type.(*ast.SelectorExpr); ok && fmt.Sprintf("%v.%v", typ.X, typ.Sel) == "embed.FS" {
		return true
	}
	return len(spec.Values) > 0 && !slices.ContainsFunc(spec.Values, func(v ast.Expr) bool { return !made(v) })
}

func made(v ast.Expr) bool {
	call, ok := v.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && slices.Contains(makers(), pkg.Name+"."+sel.Sel.Name)
}

func noFloats(t tree) []string {
	var broken []string
	for _, f := range t.code() {
		if !within(f.dir, "pkg/money", "pkg/pricing", "services/billing") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if ok && (id.Name == "float64" || id.Name == "float32") {
				broken = append(broken, fmt.Sprintf("%s: %s: money is counted in integers, since floats lose micro-dollars", f.at(n), id.Name))
			}
			return true
		})
	}
	return broken
}

// literals visits the string literals of a file, import paths and field tags
// left out.
func (f source) literals(visit func(lit *ast.BasicLit, text string)) {
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = true
		case *ast.BasicLit:
			if n.Kind != token.STRING || tags[n] {
				return true
			}
			if text, err := strconv.Unquote(n.Value); err == nil {
				visit(n, text)
			}
		}
		return true
	})
}

// sqlPattern finds statements by how they begin. Keywords in capitals are
// enough; in small letters they might be a sentence, so looksLikeSQL wants a
// second sign.
const sqlPattern = `^\s*(` +
	`SELECT\s.+\sFROM\s|SELECT\s+pg_|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|TRUNCATE\s+\S|` +
	`(CREATE|ALTER|DROP)\s+(UNIQUE\s+|OR\s+REPLACE\s+)?(TABLE|INDEX|VIEW|SCHEMA|DATABASE|ROLE|USER|FUNCTION|TRIGGER|TYPE)\s|` +
	`WITH\s+\S+\s+AS\s*\(|SET\s+\S+\s*(=|TO)\s|(GRANT|REVOKE)\s+\S+\s+ON\s)`

func looksLikeSQL() func(text string) bool {
	capitals := regexp.MustCompile(`(?s)` + sqlPattern)
	anyCase := regexp.MustCompile(`(?is)` + sqlPattern)
	second := regexp.MustCompile(`(?i)\$[0-9]|;\s*$|\bwhere\b|\bvalues\b`)
	return func(text string) bool {
		return capitals.MatchString(text) || anyCase.MatchString(text) && second.MatchString(text)
	}
}

// serverPattern is what pkg/pg may say: it opens connections and makes the
// places where migrations then put tables, before any file of sql/ applies.
const serverPattern = `(?is)^\s*(SET\s|(CREATE|ALTER|DROP)\s+(DATABASE|SCHEMA|ROLE|USER)\s|` +
	`SELECT\s+pg_|SELECT\s.+\sFROM\s+pg_|(GRANT|REVOKE)\s)`

func noSQL(t tree) []string {
	sql, server := looksLikeSQL(), regexp.MustCompile(serverPattern)
	var broken []string
	for _, f := range t.code() {
		if f.generated || within(f.dir, "sql") {
			continue
		}
		f.literals(func(lit *ast.BasicLit, text string) {
			if !sql(text) || within(f.dir, "pkg/pg") && server.MatchString(text) {
				return
			}
			broken = append(broken, f.at(lit)+": SQL text lives in sql/, where it is checked against the schema")
		})
	}
	return broken
}

func noSubjects(t tree) []string {
	subject := regexp.MustCompile(`^[a-z]+\.v[0-9]+(\.[^/\s]*)?$`)
	var broken []string
	for _, f := range t.files {
		if within(f.dir, "pkg/bus") || f.dir == "." {
			continue
		}
		f.literals(func(lit *ast.BasicLit, text string) {
			if subject.MatchString(text) && path.Ext(text) != ".json" {
				broken = append(broken, fmt.Sprintf("%s: %q: subjects are made by pkg/bus, so that they have one spelling", f.at(lit), text))
			}
		})
	}
	return broken
}

func noLooseTodos(t tree) []string {
	word, numbered := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`), regexp.MustCompile(`\bTODO\(#[0-9]+\)`)
	var broken []string
	for _, f := range t.files {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				if f.dir != "." && word.MatchString(c.Text) && !numbered.MatchString(c.Text) {
					broken = append(broken, f.at(c)+": an open end has a number, or it is forgotten: TODO(#7)")
				}
			}
		}
	}
	return broken
}

func packageDocs(t tree) []string {
	said, seen := map[string]bool{}, map[string]string{}
	for _, f := range t.files {
		if strings.HasSuffix(f.path, "_test.go") || f.generated {
			continue
		}
		seen[f.dir] = f.ast.Name.Name
		doc := f.ast.Doc.Text()
		opening := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			opening = "Command " + path.Base(f.dir) + " "
		}
		if strings.HasPrefix(doc, opening) && strings.Contains(doc, ".") {
			said[f.dir] = true
		}
	}
	var broken []string
	for dir, name := range seen {
		if !said[dir] {
			broken = append(broken, fmt.Sprintf(
				"%s: package %s has no doc sentence: Package %s … (a program: Command %s …); without one nobody knows what belongs here", dir, name, name, path.Base(dir)))
		}
	}
	slices.Sort(broken)
	return broken
}

func sharedTwice(t tree) []string {
	importers := map[string]map[string]bool{}
	for _, f := range t.files {
		if within(f.dir, "pkg/*") && !strings.HasSuffix(f.path, "_test.go") && importers[f.dir] == nil {
			importers[f.dir] = map[string]bool{}
		}
	}
	for _, f := range t.files {
		for imported := range f.imports() {
			if dir, ok := ours(imported); ok && importers[dir] != nil && dir != f.dir {
				importers[dir][f.dir] = true
			}
		}
	}
	var broken []string
	for dir, by := range importers {
		if len(by) < 2 {
			broken = append(broken, fmt.Sprintf("%s: %d importers: what is used once lives with its user", dir, len(by)))
		}
	}
	slices.Sort(broken)
	return broken
}

func telling(t tree) []string {
	empty := []string{"util", "utils", "common", "helper", "helpers", "types", "models", "misc"}
	var broken []string
	for _, f := range t.files {
		base := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
		for _, name := range []string{base, path.Base(f.dir)} {
			if !f.generated && slices.Contains(empty, name) {
				broken = append(broken, fmt.Sprintf("%s: %q says nothing; name it after what it holds", f.path, name))
			}
		}
	}
	return broken
}

// linesMax is what one reader keeps in mind.
const linesMax = 600

func shortFiles(t tree) []string {
	var broken []string
	for _, f := range t.files {
		if !f.generated && f.lines > linesMax {
			broken = append(broken, fmt.Sprintf("%s: %d lines: over %d a file holds two subjects", f.path, f.lines, linesMax))
		}
	}
	return broken
}

func modulesListed(t tree) []string {
	work, err := fs.ReadFile(t.fsys, "go.work")
	if err != nil {
		return []string{"go.work: cannot be read, so nothing is built together"}
	}
	goLine := regexp.MustCompile(`(?m)^go (\S+)$`)
	version := goLine.FindString(string(work))
	files, err := fs.Glob(t.fsys, "services/*/go.mod")
	if err != nil {
		return []string{err.Error()}
	}
	var broken []string
	for _, file := range append([]string{"go.mod"}, files...) {
		text, err := fs.ReadFile(t.fsys, file)
		if err != nil {
			broken = append(broken, file+": cannot be read")
			continue
		}
		if got := goLine.FindString(string(text)); got != version {
			broken = append(broken, fmt.Sprintf("%s: says %q and go.work %q: one version of Go builds everything", file, got, version))
		}
		if file != "go.mod" && !strings.Contains(string(work), "./"+path.Dir(file)+"\n") {
			broken = append(broken, file+": not in go.work, so no check at the root sees it")
		}
	}
	return broken
}

func modelsPriced(t tree) []string {
	rows, err := fs.ReadFile(t.fsys, "pkg/catalog/models.json")
	if err != nil {
		return []string{"pkg/catalog/models.json: cannot be read"}
	}
	prices, err := fs.ReadFile(t.fsys, "pkg/pricing/rates.json")
	if err != nil {
		return []string{"pkg/pricing/rates.json: cannot be read"}
	}
	models, err := catalog.Load(rows)
	if err != nil {
		return []string{"pkg/catalog/models.json: " + err.Error()}
	}
	list, err := pricing.Load(prices)
	if err != nil {
		return []string{"pkg/pricing/rates.json: " + err.Error()}
	}
	units := map[string]pricing.Unit{}
	var broken []string
	for _, r := range list.Rows() {
		units[r.Model] = r.Unit
		if _, ok := models.Find(r.Model); !ok {
			broken = append(broken, r.Model+": priced, but not in the catalogue; one of the two spellings is wrong")
		}
	}
	dialects := t.words("pkg/dialect")
	for _, m := range models.Models() {
		want := pricing.Token
		if m.Kind == catalog.Video {
			want = pricing.Second
		}
		if units[m.ID] != want {
			broken = append(broken, fmt.Sprintf("%s: has no price per %s, and what has no price is not served", m.ID, want))
		}
		if m.Kind == catalog.Text && dialects != nil && !dialects[m.Family] {
			broken = append(broken, fmt.Sprintf("%s: pkg/dialect does not know the family %q, so reasoning effort would be said wrongly", m.ID, m.Family))
		}
	}
	return broken
}

// words collects the string literals of a folder, nil when it has no code.
func (t tree) words(dir string) map[string]bool {
	var words map[string]bool
	for _, f := range t.code() {
		if !within(f.dir, dir) {
			continue
		}
		if words == nil {
			words = map[string]bool{}
		}
		f.literals(func(_ *ast.BasicLit, text string) { words[text] = true })
	}
	return words
}

func schemasShown(t tree) []string {
	files, err := fs.Glob(t.fsys, "schemas/bus/*.json")
	if err != nil || len(files) == 0 {
		return []string{"schemas/bus: no schemas"}
	}
	var broken []string
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".json")
		for _, side := range []string{"good", "bad"} {
			found, err := fs.Glob(t.fsys, "schemas/bus/examples/"+name+"."+side+"-*.json")
			if err != nil || len(found) == 0 {
				broken = append(broken, fmt.Sprintf("%s: has no %s example, and a schema without both may refuse everything or nothing", file, side))
			}
		}
	}
	return broken
}
