package house_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// compose is what the rules read of docker-compose.yml.
type compose struct {
	Services map[string]struct {
		Image string `yaml:"image"`
		Build struct {
			Dockerfile string            `yaml:"dockerfile"`
			Args       map[string]string `yaml:"args"`
		} `yaml:"build"`
		Environment map[string]string `yaml:"environment"`
		Volumes     []string          `yaml:"volumes"`
		DependsOn   map[string]any    `yaml:"depends_on"`
	} `yaml:"services"`
	Volumes map[string]any `yaml:"volumes"`
}

// containersFit holds the containers against the code that they run: nobody
// here can start them in a test, and a misspelt setting is ignored in silence.
func containersFit(t tree) []string {
	text, err := fs.ReadFile(t.fsys, "docker-compose.yml")
	if err != nil {
		return []string{"docker-compose.yml: cannot be read"}
	}
	var c compose
	if err := yaml.Unmarshal(text, &c); err != nil {
		return []string{"docker-compose.yml: " + err.Error()}
	}
	var broken []string
	say := func(format string, args ...any) {
		broken = append(broken, fmt.Sprintf("docker-compose.yml: "+format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		s := c.Services[name]
		for other := range s.DependsOn {
			if _, ok := c.Services[other]; !ok {
				say("%s waits for %s, which is not there", name, other)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, declared := c.Volumes[from]; !declared && !t.exists(from) {
				say("%s mounts %s, which is not there", name, from)
			}
		}
		if s.Image != "" {
			continue
		}
		if !t.exists(s.Build.Dockerfile) {
			say("%s is built by %q, which is not there", name, s.Build.Dockerfile)
		}
		service := s.Build.Args["SERVICE"]
		if !t.exists("services/"+service+"/cmd/"+service) && service != "engy" {
			say("%s has no program in services/%s/cmd/%s", name, service, service)
		}
		known := t.settings(service)
		for _, key := range slices.Sorted(maps.Keys(s.Environment)) {
			if !known[key] {
				say("%s sets %s, which services/%s does not read", name, key, service)
			}
		}
	}
	return broken
}

func (t tree) exists(name string) bool {
	_, err := fs.Stat(t.fsys, path.Clean(name))
	return err == nil
}

// settings lists the names of the environment variables that a program reads:
// the fields of its own structs under its prefix, what every program has from
// boot, and what either looks up by name.
func (t tree) settings(service string) map[string]bool {
	known := map[string]bool{}
	own := strings.ToUpper(service) + "_"
	for _, f := range t.code() {
		mine := within(f.dir, "services/"+service)
		if !mine && !within(f.dir, "pkg/boot", "pkg/telemetry") {
			continue
		}
		f.literals(func(_ *ast.BasicLit, text string) { known[text] = true })
		names, prefixes := envTags(f.ast)
		for _, n := range names {
			for _, p := range prefixes {
				known[p+n], known[own+p+n] = true, true
			}
		}
	}
	return known
}

// envTags collects the names and prefixes in the field tags of a file.
func envTags(file *ast.File) (names, prefixes []string) {
	prefixes = []string{""}
	ast.Inspect(file, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		text, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			return true
		}
		tag := reflect.StructTag(text)
		if name, _, _ := strings.Cut(tag.Get("env"), ","); name != "" {
			names = append(names, name)
		}
		if p := tag.Get("envPrefix"); p != "" {
			prefixes = append(prefixes, p)
		}
		return true
	})
	return names, prefixes
}
