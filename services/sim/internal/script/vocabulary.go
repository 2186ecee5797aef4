package script

import (
	"math"
	"sort"
	"strings"

	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
)

// words are small-letter words of at most six letters, so that each of them,
// with the blank before it, is exactly one token. Their number is a prime:
// stepping through the list by any stride then visits every word once.
const words = `about above across act add after again air all along also always and animal answer any area around ask
away back ball base be bear beauty become bed before begin behind best better big bird black blue boat body book both
box bread bridge bring brown build busy by call came can car care carry center change check child city class clean
clear close cloud cold color come common cook cool corn corner count course cover cross cry cut dance dark day deep
desk door down draw dream dress drink drive dry early earth east easy eat edge end engine enough even ever every eye
face fact fall family far farm fast father feel field fill find fine fire first fish five flat floor flower fly follow
food foot forest form free fresh friend front fruit full game garden gate gentle girl give glad glass go gold good
grain grass great green ground group grow half hall hand happy hard have head hear heart heat heavy help here high hill
hold home hope horse hot hour house ice idea in inside island join jump keep key kind king know lake lamp land large
last laugh lead leaf learn left letter level life light like line list little live long look love low`

// openers begin sentences; a blank, a capital and at most two small letters
// are one token as well.
const openers = " The One Our All Any It We No"

// zipf is the exponent of the rank distribution, near that of English text.
const zipf = 1.2

// forced is the share of probability that a token gets which the script, not
// the draw, put there. The rest is spread over the vocabulary.
const forced = 0.99

// Vocabulary is the simulator's model of language: a fixed set of words, at
// every position in another order, drawn by rank. It does not change after New
// and may be shared.
type Vocabulary struct {
	ids     []tokenizer.ID
	openers []tokenizer.ID
	prob    []float64 // by rank, sums to one
	below   []float64 // running sum of prob
	stop    tokenizer.ID
	comma   tokenizer.ID
}

// Candidate is one possible token at a position.
type Candidate struct {
	ID      tokenizer.ID
	LogProb float64
}

// NewVocabulary prepares the tables.
func NewVocabulary() *Vocabulary {
	list := strings.Fields(words)
	for !prime(len(list)) {
		list = list[:len(list)-1]
	}
	v := &Vocabulary{
		ids:   make([]tokenizer.ID, len(list)),
		prob:  make([]float64, len(list)),
		below: make([]float64, len(list)),
		stop:  tokenizer.Encode(nil, ".")[0],
		comma: tokenizer.Encode(nil, ",")[0],
	}
	for i, w := range list {
		v.ids[i] = tokenizer.Encode(nil, " "+w)[0]
	}
	v.openers = tokenizer.Encode(nil, openers)
	total := 0.0
	for r := range v.prob {
		v.prob[r] = math.Pow(float64(r+1), -zipf)
		total += v.prob[r]
	}
	sum := 0.0
	for r := range v.prob {
		v.prob[r] /= total
		sum += v.prob[r]
		v.below[r] = sum
	}
	return v
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// draw samples the word of a position. The same seed and position draw the
// same word.
func (v *Vocabulary) draw(seed uint64, position int) tokenizer.ID {
	u := unit(split(seed, uint64(position)*2+1))
	rank := sort.SearchFloat64s(v.below, u)
	return v.at(seed, position, min(rank, len(v.ids)-1))
}

// at gives the word of a rank at a position.
func (v *Vocabulary) at(seed uint64, position, rank int) tokenizer.ID {
	h := split(seed, uint64(position)*2)
	n := uint64(len(v.ids))
	stride := 1 + (h>>32)%(n-1)
	return v.ids[((h&0xffff_ffff)+stride*uint64(rank))%n]
}

// Top lists the k most likely tokens of a position, most likely first, and the
// log probability of the one that was chosen. Over the whole vocabulary the
// probabilities sum to one.
func (v *Vocabulary) Top(seed uint64, position int, s Step, k int) (chosen float64, top []Candidate) {
	share := 1.0
	top = make([]Candidate, 0, k)
	if s.Forced {
		share = 1 - forced
		own := forced
		for r := range v.ids {
			if v.at(seed, position, r) == s.ID {
				own += share * v.prob[r]
			}
		}
		chosen = math.Log(own)
		if k > 0 {
			top = append(top, Candidate{s.ID, chosen})
		}
	}
	for r := range v.ids {
		id := v.at(seed, position, r)
		if s.Forced && id == s.ID {
			continue
		}
		p := math.Log(share * v.prob[r])
		if id == s.ID {
			chosen = p
		}
		if len(top) < k {
			top = append(top, Candidate{id, p})
		}
	}
	return chosen, top
}

// Size is the number of words.
func (v *Vocabulary) Size() int { return len(v.ids) }

// split is one step of splitmix64: a good hash of a seed and a position, so
// that any position can be drawn without the ones before it.
func split(seed, position uint64) uint64 {
	z := seed + (position+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }
