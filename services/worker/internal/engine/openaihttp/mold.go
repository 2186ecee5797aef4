package openaihttp

import "bytes"

// mold is what a chunk was like: the chunks of one stream differ in a text and in
// counts, and else are the same bytes. A chunk that fits is read by comparing
// it, which is several times faster than taking it apart again.
type mold struct {
	good bool
	data []byte
	cuts []cut
	// piece is what the chunk said, seen the members that it had.
	piece piece
	seen  uint
}

// cut is a value of a chunk that may be another one in the next.
type cut struct {
	what     kind
	from, to int
}

// kind says what a cut is.
type kind int

const (
	partText kind = iota
	partReasoning
	partArguments
	// partNumber is a number that says nothing to us.
	partNumber
	partPrompt
	partCompletion
	partCached
	partTop
	partNested
	partCacheN
	partPromptN
	partPredictedN
	kinds
)

// cutsMax bounds what may differ.
const cutsMax = 32

// cut notes that a value lies between from and here.
func (q *quick) cut(what kind, from int) {
	if !q.bad {
		q.cuts = append(q.cuts, cut{what, from, q.i})
	}
}

// textual reads a string that may be another one in the next chunk.
func (q *quick) textual(what kind) string {
	q.space()
	from := q.i
	s := q.text()
	q.cut(what, from)
	return s
}

// counting reads a count that may be another one in the next chunk.
func (q *quick) counting(what kind) {
	q.space()
	from := q.i
	q.n[what] = q.integer()
	q.cut(what, from)
}

// remember keeps what a chunk was like, when the next one can be told by it.
func (q *quick) remember(p *piece) {
	var met [kinds]bool
	for _, c := range q.cuts {
		if met[c.what] && c.what != partNumber {
			return // of two it would matter which one counts
		}
		met[c.what] = true
	}
	if len(q.cuts) > cutsMax || len(p.calls) > 1 {
		return
	}
	m := &q.last
	m.good, m.piece, m.seen = true, *p, q.seen
	m.data = append(m.data[:0], q.b...)
	m.cuts = append(m.cuts[:0], q.cuts...)
}

// alike reads a chunk that is like the one before it, and tells whether it is.
// Its values are read by the same functions, so that the two agree.
func (q *quick) alike(data []byte, p *piece) bool {
	m := &q.last
	if !m.good {
		return false
	}
	q.b, q.i, q.bad, q.seen = data, 0, false, m.seen
	*p = m.piece
	at := 0
	for _, c := range m.cuts {
		if !q.same(m.data[at:c.from]) {
			return false
		}
		at = c.to
		switch c.what {
		case partText:
			p.text = q.text()
		case partReasoning:
			p.reasoning = q.text()
		case partArguments:
			p.calls[0].arg = q.text()
		case partNumber:
			q.number()
		default:
			q.n[c.what] = q.integer()
		}
		if q.bad {
			return false
		}
	}
	if !q.same(m.data[at:]) || q.i != len(data) {
		return false
	}
	q.count(p)
	return true
}

// same passes bytes that must be these.
func (q *quick) same(want []byte) bool {
	if len(q.b)-q.i < len(want) || !bytes.Equal(q.b[q.i:q.i+len(want)], want) {
		return false
	}
	q.i += len(want)
	return true
}
