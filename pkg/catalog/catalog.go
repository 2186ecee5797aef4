// Package catalog holds the models that the platform knows: models.json, its
// strict reader, and rows that a program adds at start. Prices, live workers
// and reasoning words do not live here; the house test holds the rows against
// the price list and the dialects. A Catalog is a value that never changes, so
// it may be shared. To add a model, add a row to models.json and one to
// pkg/pricing/rates.json.
package catalog

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json"
)

//go:embed models.json
var modelsJSON []byte // read-only

// Kind says which of the platform's two shapes of work a model does.
type Kind string

const (
	Text  Kind = "text"  // one exchange, answered as a stream of events
	Video Kind = "video" // a task that outlives its request
)

// AnyFamily is the family of a text model that has no dialect of its own.
const AnyFamily = "glm-5.2"

// Families lists the model families of a kind. A family decides how reasoning
// effort is said to a model and how its text is split.
func Families(k Kind) []string {
	switch k {
	case Text:
		return []string{"deepseek-v4", "deepseek-v4.1", AnyFamily, "glm-5.3", "kimi-k3", "qwen3.8"}
	case Video:
		return []string{"video"}
	}
	return nil
}

// Modalities lists what a model may take or give, in the order in which rows
// name them.
func Modalities() []string { return []string{"image", "text", "audio", "video"} }

// Bounds of a row.
const (
	// TokensMax bounds a window, so that a window at the highest rate is still
	// an amount of money.
	TokensMax int64 = 1 << 24
	// ModelsMax bounds the rows of a catalogue.
	ModelsMax = 4096
	// ScoreUsual is the ScoreMax of text models that have none of their own.
	ScoreUsual = 1024
)

// Model is one row. Its slices belong to the catalogue: read them only.
type Model struct {
	ID string `json:"id"`
	// Aliases are other ids that mean this row.
	Aliases []string `json:"aliases,omitzero"`
	// Created is when the row entered the catalogue, in Unix seconds.
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Kind    Kind   `json:"kind"`
	Family  string `json:"family"`
	// InputModalities are what the model can take at most; what is taken today
	// is up to the live workers.
	InputModalities  []string `json:"input_modalities"`
	OutputModalities []string `json:"output_modalities"`
	// Window bounds prompt and output together, in tokens, and MaxOutput the
	// output alone. Video models have neither.
	Window    int64 `json:"window,omitzero"`
	MaxOutput int64 `json:"max_output,omitzero"`
	// ScoreMax bounds the tokens of a prompt whose log-probabilities one call may ask
	// for: an engine's memory grows with them. A row that does not say has ScoreUsual.
	ScoreMax int64 `json:"score_max,omitzero"`
}

// Catalog is a checked list of models. The zero value is empty.
type Catalog struct {
	rows   []Model
	byName map[string]int
}

// Default reads the catalogue that the program was built with.
func Default() (Catalog, error) { return Load(modelsJSON) }

// Load reads a catalogue. Unknown members, members named twice, rows or
// aliases named twice, and values out of bounds are refused.
func Load(data []byte) (Catalog, error) {
	var file struct {
		Models []Model `json:"models"`
	}
	if err := json.Unmarshal(data, &file, json.RejectUnknownMembers(true)); err != nil {
		return Catalog{}, fmt.Errorf("read catalogue: %w", err)
	}
	if len(file.Models) == 0 {
		return Catalog{}, fmt.Errorf("read catalogue: no models")
	}
	return Catalog{}.With(file.Models...)
}

// With returns a catalogue that has these rows too, checked like rows that are
// read. The receiver stays as it is.
func (c Catalog) With(rows ...Model) (Catalog, error) {
	if len(c.rows)+len(rows) > ModelsMax {
		return Catalog{}, fmt.Errorf("catalogue of more than %d models", ModelsMax)
	}
	next := Catalog{rows: slices.Clone(c.rows), byName: maps.Clone(c.byName)}
	if next.byName == nil {
		next.byName = make(map[string]int, len(rows))
	}
	for _, m := range rows {
		if err := m.Validate(); err != nil {
			return Catalog{}, fmt.Errorf("model %q: %w", m.ID, err)
		}
		if m.Kind == Text && m.ScoreMax == 0 {
			m.ScoreMax = ScoreUsual
		}
		for _, name := range append([]string{m.ID}, m.Aliases...) {
			if _, taken := next.byName[name]; taken {
				return Catalog{}, fmt.Errorf("model %q: the name %q is taken", m.ID, name)
			}
			next.byName[name] = len(next.rows)
		}
		next.rows = append(next.rows, m)
	}
	return next, nil
}

// Find gives the row with this id or alias. Case counts; a vendor prefix is
// the caller's to take off.
func (c Catalog) Find(id string) (Model, bool) {
	i, ok := c.byName[id]
	if !ok {
		return Model{}, false
	}
	return c.rows[i], true
}

// Models lists all rows in the order of the file, added ones last.
func (c Catalog) Models() []Model { return slices.Clone(c.rows) }

// A name must survive a URL path, a vendor prefix and a bus subject.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// IsName tells whether a model can have this name.
func IsName(name string) bool { return namePattern.MatchString(name) }

// Validate tells what is wrong with the row by itself.
func (m Model) Validate() error {
	for _, name := range append([]string{m.ID}, m.Aliases...) {
		if !IsName(name) {
			return fmt.Errorf("%q is not a model name", name)
		}
	}
	switch {
	case m.Created <= 0:
		return fmt.Errorf("created must be a time in Unix seconds")
	case m.OwnedBy == "":
		return fmt.Errorf("owned_by is missing")
	case Families(m.Kind) == nil:
		return fmt.Errorf("kind %q is neither text nor video", m.Kind)
	case !slices.Contains(Families(m.Kind), m.Family):
		return fmt.Errorf("family %q is not a family of kind %s", m.Family, m.Kind)
	}
	if err := checkModalities("input_modalities", m.InputModalities); err != nil {
		return err
	}
	if err := checkModalities("output_modalities", m.OutputModalities); err != nil {
		return err
	}
	return m.checkTokens()
}

func (m Model) checkTokens() error {
	if m.Kind == Video {
		if m.Window != 0 || m.MaxOutput != 0 || m.ScoreMax != 0 {
			return fmt.Errorf("a video model has no window, no max_output and no score_max")
		}
		return nil
	}
	if m.Window <= 0 || m.Window > TokensMax {
		return fmt.Errorf("window must be from 1 to %d tokens", TokensMax)
	}
	if m.MaxOutput <= 0 || m.MaxOutput > m.Window {
		return fmt.Errorf("max_output must be from 1 to the window of %d tokens", m.Window)
	}
	if m.ScoreMax < 0 || m.ScoreMax > TokensMax {
		return fmt.Errorf("score_max must be from 1 to %d tokens", TokensMax)
	}
	return nil
}

// checkModalities wants at least one known modality, each once and in the
// common order, so that answers list them in the same order everywhere.
func checkModalities(field string, got []string) error {
	if len(got) == 0 {
		return fmt.Errorf("%s is missing", field)
	}
	last := -1
	for _, name := range got {
		at := slices.Index(Modalities(), name)
		if at < 0 {
			return fmt.Errorf("%s: %q is not a modality", field, name)
		}
		if at <= last {
			return fmt.Errorf("%s: %q is out of order or twice", field, name)
		}
		last = at
	}
	return nil
}
