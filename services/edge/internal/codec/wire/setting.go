package wire

import (
	"bytes"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// Settings checks the members that engines read of how they shall answer. One of
// the wrong kind is refused here, where its name is known and nothing runs yet: an
// engine says so in words of its own, or fails. What is right travels on byte for
// byte, but for whole numbers, which are written plainly. Null is as good as
// absent, and what is not in the table is for the engine to know.
func Settings(fields []llm.Field) error {
	for i := range fields {
		f := &fields[i]
		raw := jsontext.Value(f.Value)
		if raw.Kind() == 'n' {
			continue
		}
		kept, ok, must := setting(f.Name, raw)
		if !ok {
			return fault.At(f.Name, f.Name+" must be "+must)
		}
		f.Value = []byte(kept)
	}
	return nil
}

// floatMax is the largest number: engines keep these in 32 bits, where more is
// infinite.
const floatMax = math.MaxFloat32

// setting is the table: what a member must be, whether it is, and how it travels on.
// A range stands in it only where the protocols have one and no engine makes sense
// of more: llama.cpp and Ollama take any penalty, and all engines take a temperature
// above 2.
func setting(name string, raw jsontext.Value) (kept jsontext.Value, ok bool, must string) {
	kept, ok = raw, true
	switch name {
	case "temperature":
		ok, must = number(raw, 0, floatMax), "a finite number of at least 0"
	case "top_p":
		ok, must = number(raw, 0, 1), "a number from 0 to 1"
	case "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty":
		ok, must = number(raw, -floatMax, floatMax), "a finite number"
	case "top_k":
		// All tokens are -1 to some engines and 0 to others.
		kept, ok = whole(raw, -1, math.MaxInt32)
		must = "a whole number of at least -1, in 32 bits"
	case "min_tokens":
		kept, ok = whole(raw, 0, math.MaxInt32)
		must = "a whole number of at least 0, in 32 bits"
	case "seed":
		kept, ok = whole(raw, math.MinInt64, math.MaxUint64)
		must = "a whole number, in 64 bits"
	case "stop_token_ids":
		kept, ok = wholes(raw)
		must = "a list of whole numbers, in 32 bits"
	case "stop":
		ok, must = raw.Kind() == '"' || texts(raw), "a string or a list of strings"
	case "logit_bias":
		ok, must = numbers(raw), "an object of finite numbers"
	case "response_format":
		ok, must = raw.Kind() == '{', "an object"
	case "parallel_tool_calls", "ignore_eos", "skip_special_tokens", "include_stop_str_in_output":
		ok, must = raw.Kind() == 't' || raw.Kind() == 'f', "true or false"
	}
	return kept, ok, must
}

func number(raw jsontext.Value, low, high float64) bool {
	if raw.Kind() != '0' {
		return false
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	return err == nil && n >= low && n <= high
}

// numbers tells whether raw is an object whose members are numbers.
func numbers(raw jsontext.Value) bool {
	if raw.Kind() != '{' {
		return false
	}
	ok := true
	err := Members(raw, func(_ string, value jsontext.Value) error {
		ok = ok && number(value, -floatMax, floatMax)
		return nil
	})
	return err == nil && ok
}

func whole(raw jsontext.Value, low int64, high uint64) (plain jsontext.Value, ok bool) {
	if plain, ok = Whole(raw); !ok {
		return nil, false
	}
	if plain[0] == '-' {
		n, err := strconv.ParseInt(string(plain), 10, 64)
		return plain, err == nil && n >= low
	}
	n, err := strconv.ParseUint(string(plain), 10, 64)
	return plain, err == nil && n <= high
}

// wholes reads a list of whole numbers, and keeps it as it came if all are plain.
func wholes(raw jsontext.Value) (kept jsontext.Value, ok bool) {
	same, list := true, []byte("[")
	ok = Elements(raw, func(value jsontext.Value) bool {
		plain, ok := whole(value, math.MinInt32, math.MaxInt32)
		same = same && bytes.Equal(plain, value)
		list = append(append(list, plain...), ',')
		return ok
	})
	if !ok || same {
		return raw, ok
	}
	return append(list[:len(list)-1], ']'), true
}

// texts tells whether raw is a list of strings.
func texts(raw jsontext.Value) bool {
	return Elements(raw, func(value jsontext.Value) bool { return value.Kind() == '"' })
}
