package anthropic

import (
	"strconv"
	"time"

	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// Model is one row of the models list. Created is in Unix seconds, the limits in
// tokens.
type Model struct {
	ID        string
	Created   int64
	MaxInput  int64
	MaxOutput int64
}

// Models writes the list. It is never more than one page.
func Models(rows []Model) []byte {
	b := []byte(`{"data":[`)
	for i, m := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, One(m)...)
	}
	b = append(b, `],"has_more":false,"first_id":`...)
	if len(rows) == 0 {
		return append(b, `null,"last_id":null}`...)
	}
	b = wire.Quote(b, rows[0].ID)
	b = wire.Quote(append(b, `,"last_id":`...), rows[len(rows)-1].ID)
	return append(b, '}')
}

// One writes a single row.
func One(m Model) []byte {
	b := wire.Quote([]byte(`{"type":"model","id":`), m.ID)
	b = wire.Quote(append(b, `,"display_name":`...), m.ID)
	b = wire.Quote(append(b, `,"created_at":`...), time.Unix(m.Created, 0).UTC().Format(time.RFC3339))
	b = strconv.AppendInt(append(b, `,"max_input_tokens":`...), m.MaxInput, 10)
	b = strconv.AppendInt(append(b, `,"max_tokens":`...), m.MaxOutput, 10)
	return append(b, '}')
}

// Counted writes the answer to a count.
func (Codec) Counted(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"input_tokens":`), tokens, 10), '}')
}
