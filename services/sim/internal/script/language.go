package script

import (
	"math"
	"slices"
	"sort"

	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

// State is all that the language knows of the text before a token: a hash of its
// tokens, and the last one. The zero value is the state before any text. How
// likely a token is depends on the state alone, so it is the same whether the
// token is made, read in a prompt, or scored.
type State struct {
	sum  uint64
	last tokenizer.ID
}

// After is the state behind one more token.
func (s State) After(id tokenizer.ID) State {
	return State{split(s.sum^uint64(id)<<32, uint64(id)), id}
}

// Read is the state behind a whole text.
func Read(ids []tokenizer.ID) State {
	var s State
	for _, id := range ids {
		s = s.After(id)
	}
	return s
}

// Candidate is one possible token at a position.
type Candidate struct {
	ID      tokenizer.ID
	LogProb float64
}

// Elsewhere is the share of probability of all tokens that the language never
// makes by itself, such as those of a caller's text. It is spread evenly over the
// IDs of them.
const Elsewhere = 0.03

// IDs is how many ids there are: those of a positive int32.
const IDs = 1 << 31

// shares is how likely each group of tokens is at a position. Together with
// Elsewhere they sum to one; a group with no share counts as elsewhere.
type shares struct{ words, openers, comma, stop float64 }

// shares tells what may follow: sentences of about a dozen words. A mark never
// follows a mark, since the tokenizer would read them as one token.
func (v *Vocabulary) shares(s State) shares {
	if s.last == v.stop {
		return shares{openers: 1 - Elsewhere}
	}
	if _, word := v.index[s.last]; word || slices.Contains(v.openers, s.last) {
		return shares{words: 0.81, comma: 0.07, stop: 0.09}
	}
	return shares{words: 1 - Elsewhere}
}

// LogProb is the log-probability of a token after a text.
func (v *Vocabulary) LogProb(s State, id tokenizer.ID) float64 {
	likely, size := v.shares(s), 0
	if likely.words > 0 {
		if i, ok := v.index[id]; ok {
			return math.Log(likely.words * v.prob[v.rank(s, i)])
		}
		size += len(v.ids)
	}
	if likely.openers > 0 {
		if slices.Contains(v.openers, id) {
			return math.Log(likely.openers / float64(len(v.openers)))
		}
		size += len(v.openers)
	}
	if likely.comma > 0 {
		if id == v.comma {
			return math.Log(likely.comma)
		}
		size++
	}
	if likely.stop > 0 {
		if id == v.stop {
			return math.Log(likely.stop)
		}
		size++
	}
	return math.Log(Elsewhere / float64(IDs-size))
}

// Likely lists the k most likely tokens after a text, most likely first, or as
// many as the language may make there.
func (v *Vocabulary) Likely(s State, k int) []Candidate {
	likely := v.shares(s)
	var few []Candidate
	if likely.openers > 0 {
		for _, id := range v.openers {
			few = append(few, Candidate{id, math.Log(likely.openers / float64(len(v.openers)))})
		}
	}
	if likely.comma > 0 {
		few = append(few, Candidate{v.stop, math.Log(likely.stop)}, Candidate{v.comma, math.Log(likely.comma)})
	}
	list := make([]Candidate, 0, min(k, len(few)+len(v.ids)))
	for rank := 0; len(list) < k; {
		word := math.Inf(-1)
		if likely.words > 0 && rank < len(v.ids) {
			word = math.Log(likely.words * v.prob[rank])
		}
		switch {
		case len(few) > 0 && few[0].LogProb >= word:
			list = append(list, few[0])
			few = few[1:]
		case math.IsInf(word, -1):
			return list
		default:
			list = append(list, Candidate{v.at(s, rank), word})
			rank++
		}
	}
	return list
}

// draw makes the next token: one of those that are likely, by chance. The same
// text and seed draw the same token.
func (v *Vocabulary) draw(s State, seed uint64) tokenizer.ID {
	likely := v.shares(s)
	u := unit(split(s.sum^seed*0x9e3779b97f4a7c15, 1)) * (1 - Elsewhere)
	if u < likely.words {
		rank := sort.SearchFloat64s(v.below, u/likely.words)
		return v.at(s, min(rank, len(v.ids)-1))
	}
	u -= likely.words
	if u < likely.openers {
		return v.openers[min(int(u/likely.openers*float64(len(v.openers))), len(v.openers)-1)]
	}
	if u -= likely.openers; u < likely.comma {
		return v.comma
	}
	return v.stop
}

// order is where the words of a position begin, and in which steps they are
// visited.
func (v *Vocabulary) order(s State) (start, stride uint64) {
	h := split(s.sum, 0)
	n := uint64(len(v.ids))
	return h & 0xffff_ffff % n, 1 + (h>>32)%(n-1)
}

// at gives the word of a rank after a text.
func (v *Vocabulary) at(s State, rank int) tokenizer.ID {
	start, stride := v.order(s)
	return v.ids[(start+stride*uint64(rank))%uint64(len(v.ids))]
}

// rank finds the rank of a word after a text. It is what at undoes.
func (v *Vocabulary) rank(s State, index int) int {
	start, stride := v.order(s)
	n := uint64(len(v.ids))
	// The number of words is a prime, so every stride has an inverse: itself, to
	// the power of two less.
	inverse, square := uint64(1), stride
	for e := n - 2; e > 0; e >>= 1 {
		if e&1 == 1 {
			inverse = inverse * square % n
		}
		square = square * square % n
	}
	return int((uint64(index) + n - start) % n * inverse % n)
}

// Size is the number of words.
func (v *Vocabulary) Size() int { return len(v.ids) }
