package bus_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/pricing"
	"github.com/engy-ai/engy/schemas"
)

// messages pairs every schema with the type that is written by it.
func messages() map[string]reflect.Type {
	return map[string]reflect.Type{
		"alive":   reflect.TypeFor[bus.Alive](),
		"renewal": reflect.TypeFor[bus.Renewal](), "renewal_answer": reflect.TypeFor[bus.RenewalAnswer](),
		"alive_answer":  reflect.TypeFor[bus.AliveAnswer](),
		"claim":         reflect.TypeFor[bus.Claim](),
		"dispatch":      reflect.TypeFor[bus.Dispatch](),
		"frames":        reflect.TypeFor[bus.Frames](),
		"funds":         reflect.TypeFor[bus.Funds](),
		"grant":         reflect.TypeFor[bus.Grant](),
		"heartbeat":     reflect.TypeFor[bus.Heartbeat](),
		"hold":          reflect.TypeFor[bus.Hold](),
		"hold_answer":   reflect.TypeFor[bus.HoldAnswer](),
		"principal":     reflect.TypeFor[bus.Principal](),
		"report":        reflect.TypeFor[bus.Report](),
		"ticket":        reflect.TypeFor[bus.Ticket](),
		"tokens_answer": reflect.TypeFor[bus.TokensAnswer](),
		"usage":         reflect.TypeFor[bus.UsageEvent](),
	}
}

func TestEverySchemaHasATypeAndEveryTypeASchema(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(schemas.FS, "bus/*.json")
	require.NoError(t, err)
	var named []string
	for _, f := range files {
		named = append(named, strings.TrimSuffix(path.Base(f), ".v1.json"))
	}
	var typed []string
	reached := map[string]bool{}
	for name, typ := range messages() {
		typed = append(typed, name)
		reach(typ, reached)
	}
	require.ElementsMatch(t, named, typed, "schemas/bus and the table of this test differ")
	for _, name := range declaredMessages(t) {
		require.True(t, reached[name], "%s has JSON names but is no message and no part of one", name)
	}
}

// reach collects the names of the types of this package that a message holds.
func reach(typ reflect.Type, seen map[string]bool) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice:
		reach(typ.Elem(), seen)
	case reflect.Struct:
		if typ.PkgPath() == reflect.TypeFor[bus.Ticket]().PkgPath() {
			seen[typ.Name()] = true
		}
		for i := range typ.NumField() {
			reach(typ.Field(i).Type, seen)
		}
	default:
	}
}

// declaredMessages lists the struct types of this package whose fields have
// JSON names, as the source says.
func declaredMessages(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, f := range sourceFiles(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok && slices.ContainsFunc(st.Fields.List, func(f *ast.Field) bool {
				return f.Tag != nil && strings.Contains(f.Tag.Value, `json:"`)
			}) {
				names = append(names, spec.Name.Name)
			}
			return true
		})
	}
	require.NotEmpty(t, names)
	return names
}

func sourceFiles(t *testing.T) []*ast.File {
	t.Helper()
	paths, err := fs.Glob(os.DirFS("."), "*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		src, err := os.ReadFile(p)
		require.NoError(t, err)
		f, err := parser.ParseFile(token.NewFileSet(), p, src, 0)
		require.NoError(t, err)
		files = append(files, f)
	}
	return files
}

func TestSchemasNameTheFieldsOfTheirTypes(t *testing.T) {
	t.Parallel()
	for name, typ := range messages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var root map[string]any
			require.NoError(t, json.Unmarshal(read(t, "bus/"+name+".v1.json"), &root))
			walk(t, root, root, typ, typ.Name())
		})
	}
}

// walk follows a schema and a Go type side by side.
func walk(t *testing.T, root, node map[string]any, typ reflect.Type, at string) {
	t.Helper()
	node = follow(t, root, node)
	switch typ.Kind() {
	case reflect.Pointer:
		walk(t, root, node, typ.Elem(), at)
	case reflect.Slice:
		require.Equal(t, "array", node["type"], at)
		if items, ok := node["items"].(map[string]any); ok {
			walk(t, root, items, typ.Elem(), at+"[]")
		}
	case reflect.Struct:
		if typ == reflect.TypeFor[time.Time]() {
			require.Equal(t, "date-time", node["format"], at)
			return
		}
		walkStruct(t, root, node, typ, at)
	case reflect.String:
		walkString(t, node, typ, at)
	case reflect.Bool:
		require.Equal(t, "boolean", node["type"], at)
	case reflect.Int, reflect.Int64:
		require.Equal(t, "integer", node["type"], at)
	default:
		require.Fail(t, "this kind of field needs a rule here", "%s is a %s", at, typ)
	}
}

func walkStruct(t *testing.T, root, node map[string]any, typ reflect.Type, at string) {
	t.Helper()
	require.Equal(t, "object", node["type"], at)
	props, _ := node["properties"].(map[string]any)
	var names, required []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		require.NotEmpty(t, name, "%s.%s has no JSON name", at, f.Name)
		names = append(names, name)
		if !strings.Contains(options, "omitzero") && !strings.Contains(options, "omitempty") {
			required = append(required, name)
		}
		child, ok := props[name].(map[string]any)
		require.True(t, ok, "the schema does not know %s.%s", at, name)
		if f.Type == reflect.TypeFor[jsontext.Value]() || f.Type.PkgPath() == "encoding/json" {
			continue
		}
		walk(t, root, child, f.Type, at+"."+name)
	}
	require.ElementsMatch(t, names, keys(props), "%s: properties", at)
	require.ElementsMatch(t, required, texts(node["required"]), "%s: required", at)
}

// walkString holds an enumeration against the Go side's own list.
func walkString(t *testing.T, node map[string]any, typ reflect.Type, at string) {
	t.Helper()
	lists := map[reflect.Type][]string{
		reflect.TypeFor[fault.Code]():      words(fault.Codes()),
		reflect.TypeFor[pricing.Outcome](): words(pricing.Outcomes()),
		reflect.TypeFor[bus.Class]():       words(bus.Covers(true, true)),
		reflect.TypeFor[bus.Verdict]():     words([]bus.Verdict{bus.Granted, bus.Gone, bus.Taken, bus.Barred}),
	}
	if list, ok := lists[typ]; ok {
		require.ElementsMatch(t, list, texts(node["enum"]), at)
		return
	}
	if node["enum"] == nil && node["const"] == nil {
		require.Equal(t, "string", node["type"], at)
	}
}

func TestGoodExamplesSurviveTheRoundTrip(t *testing.T) {
	t.Parallel()
	for name, typ := range messages() {
		schema := compile(t, name)
		for _, file := range examples(t, name, "good") {
			t.Run(path.Base(file), func(t *testing.T) {
				t.Parallel()
				data := read(t, file)
				require.NoError(t, check(t, schema, data))
				v := reflect.New(typ)
				require.NoError(t, json.Unmarshal(data, v.Interface(), json.RejectUnknownMembers(true)))
				require.NoError(t, validate(v))
				again, err := bus.Marshal(v.Interface())
				require.NoError(t, err)
				require.NoError(t, check(t, schema, again))
				require.JSONEq(t, string(data), string(again))
			})
		}
	}
}

func TestBadExamplesAreRefused(t *testing.T) {
	t.Parallel()
	for name, typ := range messages() {
		schema := compile(t, name)
		for _, file := range examples(t, name, "bad") {
			t.Run(path.Base(file), func(t *testing.T) {
				t.Parallel()
				data := read(t, file)
				require.Error(t, check(t, schema, data))
				v := reflect.New(typ)
				if _, ok := v.Interface().(interface{ Validate() error }); !ok {
					return
				}
				if err := json.Unmarshal(data, v.Interface()); err == nil {
					require.Error(t, validate(v), "the type takes what its schema refuses")
				}
			})
		}
	}
}

// Newer services write members that older ones have not heard of.
func TestUnknownMembersArePassedOver(t *testing.T) {
	t.Parallel()
	for name, typ := range messages() {
		schema := compile(t, name)
		for _, file := range examples(t, name, "good") {
			var members map[string]any
			require.NoError(t, json.Unmarshal(read(t, file), &members))
			members["added_later"] = "x"
			data, err := json.Marshal(members)
			require.NoError(t, err)
			require.NoError(t, check(t, schema, data), file)
			require.NoError(t, bus.Unmarshal(data, reflect.New(typ).Interface()), file)
		}
	}
}

func TestEveryExampleBelongsToAMessage(t *testing.T) {
	t.Parallel()
	all, err := fs.Glob(schemas.FS, "bus/examples/*")
	require.NoError(t, err)
	var claimed []string
	for name := range messages() {
		claimed = append(claimed, examples(t, name, "good")...)
		claimed = append(claimed, examples(t, name, "bad")...)
	}
	require.ElementsMatch(t, all, claimed)
}

func examples(t *testing.T, name, side string) []string {
	t.Helper()
	files, err := fs.Glob(schemas.FS, fmt.Sprintf("bus/examples/%s.v1.%s-*.json", name, side))
	require.NoError(t, err)
	require.NotEmpty(t, files, "%s has no %s example", name, side)
	return files
}

func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(read(t, "bus/"+name+".v1.json")))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	// Without this, a format is only a remark.
	c.AssertFormat()
	require.NoError(t, c.AddResource(name, doc))
	schema, err := c.Compile(name)
	require.NoError(t, err)
	return schema
}

func check(t *testing.T, schema *jsonschema.Schema, data []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	return schema.Validate(v)
}

func validate(v reflect.Value) error {
	if c, ok := v.Interface().(interface{ Validate() error }); ok {
		return c.Validate()
	}
	return nil
}

func follow(t *testing.T, root, node map[string]any) map[string]any {
	t.Helper()
	ref, ok := node["$ref"].(string)
	if !ok {
		return node
	}
	defs, _ := root["$defs"].(map[string]any)
	target, ok := defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	require.True(t, ok, "%s leads nowhere", ref)
	return target
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := fs.ReadFile(schemas.FS, file)
	require.NoError(t, err)
	return data
}

func keys(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		out = append(out, fmt.Sprint(x))
	}
	return out
}

func words[T ~string](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, string(x))
	}
	return out
}
