package wire

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
)

const (
	// wholeDigitsMax is how many digits a whole number may have: no finite double has
	// more, and to most readers of JSON numbers are doubles.
	wholeDigitsMax = 309
	// exponentMost stands for exponents that no number of digits makes up for: no
	// body has so many.
	exponentMost = 1 << 40
)

// Whole gives a whole number as it is written plainly: to JSON 1.0 and 1e1 are as
// whole as 10 is, and clients write them. Nothing is rounded, so 1.5 and 1e-1 are
// none, and an exponent costs no more than its own digits.
func Whole(raw jsontext.Value) (plain []byte, ok bool) {
	if raw.Kind() != '0' {
		return nil, false
	}
	text, negative := bytes.CutPrefix(raw, []byte("-"))
	n := digits(text)
	switch {
	case n == len(text) && n > wholeDigitsMax:
		return nil, false
	case n == len(text) && text[0] != '0':
		return raw, true
	}
	// The first place is for the sign; most numbers fit an int64, which has 19 digits.
	plain = append(append(make([]byte, 0, 1+len(text)+19), '-'), text[:n]...)
	var exponent int64
	if text = text[n:]; len(text) > 0 && text[0] == '.' {
		n = digits(text[1:])
		plain = append(plain, text[1:1+n]...)
		text, exponent = text[1+n:], -int64(n)
	}
	if len(text) > 0 {
		exponent += power(text[1:])
	}
	short := bytes.TrimRight(plain[1:], "0")
	zeros := exponent + int64(len(plain)-1-len(short))
	first := len(plain) - len(bytes.TrimLeft(plain[1:], "0"))
	plain = plain[:1+len(short)]
	switch {
	case len(short) == 0:
		return []byte("0"), true
	case zeros < 0 || int64(len(plain)-first)+zeros > wholeDigitsMax:
		return nil, false
	}
	for range zeros {
		plain = append(plain, '0')
	}
	if negative {
		first--
		plain[first] = '-'
	}
	return plain[first:], true
}

// digits counts the digits that text begins with.
func digits(text []byte) int {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}

// power reads the digits of an exponent, as far as they matter.
func power(text []byte) int64 {
	text, negative := bytes.CutPrefix(text, []byte("-"))
	var n int64
	for _, c := range bytes.TrimPrefix(text, []byte("+")) {
		n = min(n*10+int64(c-'0'), exponentMost)
	}
	if negative {
		return -n
	}
	return n
}

// Count reads a whole number of at least low; absent and null give 0. What is
// larger than an int64 is as good as the largest one: limits lower it anyway.
func Count(field string, raw jsontext.Value, low int64) (int64, error) {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return 0, nil
	}
	bad := fault.At(field, field+" must be a whole number of at least "+strconv.FormatInt(low, 10))
	plain, ok := Whole(raw)
	if !ok {
		return 0, bad
	}
	n, err := strconv.ParseInt(string(plain), 10, 64)
	if errors.Is(err, strconv.ErrRange) && plain[0] != '-' {
		return 1<<63 - 1, nil
	}
	if err != nil || n < low {
		return 0, bad
	}
	return n, nil
}
