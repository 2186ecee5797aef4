package pricing

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/engy-ai/engy/pkg/money"
)

//go:embed rates.json
var ratesJSON []byte // read-only

// Unit says what a row's counts are counts of.
type Unit string

const (
	Token  Unit = "token"  // prompt and output tokens
	Second Unit = "second" // seconds of finished video, counted as output
)

// Bounds of a price list.
const (
	// RateMax is one US dollar for a single unit. It keeps a whole window at
	// the highest rate inside an amount of money.
	RateMax money.Rate = 1_000_000_000_000
	// RowsMax bounds the rows of a list.
	RowsMax = 4096
	// VersionBytesMax bounds the name of a list.
	VersionBytesMax = 64
)

// Row is the price of one model.
type Row struct {
	Model string
	Unit  Unit
	Rates Rates
}

// List is a checked price list. The zero value prices nothing: a model without
// a row has no price, which is not a price of zero.
type List struct {
	version string
	rows    map[string]Row
}

// fileRow is a row as written: numbers that may be missing are pointers, since
// a price of zero must be written out.
type fileRow struct {
	Model       string      `json:"model"`
	Unit        Unit        `json:"unit"`
	Input       *money.Rate `json:"input"`
	Output      *money.Rate `json:"output"`
	CachedInput *money.Rate `json:"cached_input"`
}

// Default reads the price list that the program was built with.
func Default() (List, error) { return Load(ratesJSON) }

// Load reads a price list. Rates are integers in micro-USD per million units.
// Unknown members, members or models named twice, and a missing input or
// output price are refused; a missing cached price is the full input price.
func Load(data []byte) (List, error) {
	var file struct {
		Version string    `json:"version"`
		Rates   []fileRow `json:"rates"`
	}
	if err := json.Unmarshal(data, &file, json.RejectUnknownMembers(true)); err != nil {
		return List{}, fmt.Errorf("read rates: %w", err)
	}
	if file.Version == "" || len(file.Version) > VersionBytesMax {
		return List{}, fmt.Errorf("read rates: version must be from 1 to %d bytes", VersionBytesMax)
	}
	if len(file.Rates) == 0 {
		return List{}, fmt.Errorf("read rates: no rates")
	}
	rows := make([]Row, 0, len(file.Rates))
	for _, f := range file.Rates {
		row, err := f.row()
		if err != nil {
			return List{}, fmt.Errorf("rates of %q: %w", f.Model, err)
		}
		rows = append(rows, row)
	}
	return List{version: file.Version}.With(rows...)
}

func (f fileRow) row() (Row, error) {
	if f.Input == nil {
		return Row{}, fmt.Errorf("input is missing; a price of zero is written as 0")
	}
	if f.Output == nil {
		return Row{}, fmt.Errorf("output is missing; a price of zero is written as 0")
	}
	cached := f.Input
	if f.CachedInput != nil {
		cached = f.CachedInput
	}
	return Row{Model: f.Model, Unit: f.Unit, Rates: Rates{Input: *f.Input, Output: *f.Output, CachedInput: *cached}}, nil
}

// With returns a list that has these rows too, checked like rows that are
// read. Rows without a version get the list's. The receiver stays as it is.
func (l List) With(rows ...Row) (List, error) {
	if len(l.rows)+len(rows) > RowsMax {
		return List{}, fmt.Errorf("price list of more than %d rows", RowsMax)
	}
	next := List{version: l.version, rows: maps.Clone(l.rows)}
	if next.rows == nil {
		next.rows = make(map[string]Row, len(rows))
	}
	for _, r := range rows {
		if r.Rates.Version == "" {
			r.Rates.Version = l.version
		}
		if err := r.Validate(); err != nil {
			return List{}, fmt.Errorf("rates of %q: %w", r.Model, err)
		}
		if _, taken := next.rows[r.Model]; taken {
			return List{}, fmt.Errorf("rates of %q: the model has a row already", r.Model)
		}
		next.rows[r.Model] = r
	}
	return next, nil
}

// Validate tells what is wrong with the row by itself.
func (r Row) Validate() error {
	switch {
	case r.Model == "":
		return fmt.Errorf("model is missing")
	case r.Unit != Token && r.Unit != Second:
		return fmt.Errorf("unit %q is neither token nor second", r.Unit)
	case r.Rates.Version == "" || len(r.Rates.Version) > VersionBytesMax:
		return fmt.Errorf("version must be from 1 to %d bytes", VersionBytesMax)
	}
	for _, p := range []struct {
		name string
		rate money.Rate
	}{{"input", r.Rates.Input}, {"output", r.Rates.Output}, {"cached_input", r.Rates.CachedInput}} {
		if p.rate < 0 || p.rate > RateMax {
			return fmt.Errorf("%s must be from 0 to %d", p.name, RateMax)
		}
	}
	return nil
}

// Version names the list.
func (l List) Version() string { return l.version }

// Of gives the rates of a model by its catalogue id. Without a row there is no
// price, and the model must not be served.
func (l List) Of(model string) (Rates, bool) {
	r, ok := l.rows[model]
	return r.Rates, ok
}

// Rows lists all rows, sorted by model.
func (l List) Rows() []Row {
	rows := make([]Row, 0, len(l.rows))
	for _, model := range slices.Sorted(maps.Keys(l.rows)) {
		rows = append(rows, l.rows[model])
	}
	return rows
}
