package script

import (
	"math"
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

// Vocabulary is the simulator's model of language: a fixed set of words, after
// every text in another order, drawn by rank. It does not change after New and
// may be shared.
type Vocabulary struct {
	ids     []tokenizer.ID
	openers []tokenizer.ID
	index   map[tokenizer.ID]int // of words
	prob    []float64            // by rank, sums to one
	below   []float64            // running sum of prob
	stop    tokenizer.ID
	comma   tokenizer.ID
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
		index: make(map[tokenizer.ID]int, len(list)),
		stop:  tokenizer.Encode(nil, ".")[0],
		comma: tokenizer.Encode(nil, ",")[0],
	}
	for i, w := range list {
		v.ids[i] = tokenizer.Encode(nil, " "+w)[0]
		v.index[v.ids[i]] = i
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

// split is one step of splitmix64: a good hash of a seed and a position, so
// that any position can be drawn without the ones before it.
func split(seed, position uint64) uint64 {
	z := seed + (position+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }
