// Package tokenizer turns text into token ids and back, and chat messages into
// one prompt of ids.
//
// What lives here: the splitting rules, the id layout, the special tokens and
// the chat template. What does not: counting against a window, caching,
// generation. The invariant: Decode(Encode(s)) == s for every byte string, and
// an id means the same bytes for ever, because an id carries its bytes inside
// it instead of pointing into a vocabulary. To add a kind of piece, give it a
// free id range below, teach Append to read it and Encode to cut it; the
// property tests then hold it to the invariant.
package tokenizer

import "unicode/utf8"

// ID is one token. It fits a positive int32, as the ids of real engines do.
type ID uint32

// Special tokens have ids below the first code point that needs four bytes.
// They stand for structure, so they decode to no text at all.
const (
	System     ID = 1 + iota // opens a system or developer message
	User                     // opens a user message
	Assistant                // opens an assistant message, or asks for one
	ToolResult               // opens the result of a tool call
	End                      // closes a message
	Tools                    // opens the list of offered tools
	ThinkOn                  // asks for reasoning before the answer
	ThinkOff                 // asks for none
	Media                    // one slot of an image, audio or video part
	Call                     // opens a tool call in an answer

	specialEnd
)

// The id layout. A word piece is a number to the base 27, with or without a
// blank in front; other ASCII pieces are packed seven bits a byte; everything
// else is packed as raw bytes, save for four-byte code points, which are their
// own ids.
const (
	planeFirst ID = 0x10000
	planeEnd   ID = 0x110000

	wordLetters    = 6
	wordSpan    ID = 27 * 27 * 27 * 27 * 27 * 27
	wordFirst   ID = 1 << 26
	wordBlank   ID = wordFirst + wordSpan
	wordEnd     ID = wordBlank + wordSpan

	ascii4 ID = 0x4000_0000
	ascii3 ID = 0x5000_0000
	ascii2 ID = 0x5100_0000
	ascii1 ID = 0x5200_0000
	raw3   ID = 0x6000_0000
	raw2   ID = 0x6100_0000
	raw1   ID = 0x6200_0000
	rawEnd ID = 0x6200_0100
)

// bytesPerToken sizes the id slice ahead of time. English text needs a little
// less room than this, so that a long prompt costs one allocation.
const bytesPerToken = 3

// Encode appends the ids of s to dst. It accepts any bytes.
func Encode(dst []ID, s string) []ID {
	if cap(dst)-len(dst) < len(s)/bytesPerToken {
		grown := make([]ID, len(dst), len(dst)+len(s)/bytesPerToken+64)
		copy(grown, dst)
		dst = grown
	}
	for i := 0; i < len(s); {
		id, n := next(s[i:])
		dst = append(dst, id)
		i += n
	}
	return dst
}

// Count tells how many tokens s has, without keeping them.
func Count(s string) int {
	count := 0
	for i := 0; i < len(s); count++ {
		_, n := next(s[i:])
		i += n
	}
	return count
}

// next cuts the first piece off a string that is not empty.
func next(s string) (ID, int) {
	c := s[0]
	switch {
	case isLower(c):
		return word(s, 0, wordFirst)
	case c == ' ' && len(s) > 1 && isLower(s[1]):
		return word(s, 1, wordBlank)
	case c >= utf8.RuneSelf:
		return foreign(s)
	}
	n := asciiLen(s)
	return packASCII(s[:n]), n
}

// word packs a run of small letters that begins at start.
func word(s string, start int, base ID) (ID, int) {
	end := min(len(s), start+wordLetters)
	v := ID(0)
	i := start
	for ; i < end && isLower(s[i]); i++ {
		v = v*27 + ID(s[i]-'a') + 1
	}
	return base + v, i
}

// foreign packs one code point outside ASCII, or one byte of broken UTF-8.
func foreign(s string) (ID, int) {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n <= 1:
		return raw1 | ID(s[0]), 1
	case n == 2:
		return raw2 | ID(s[0])<<8 | ID(s[1]), 2
	case n == 3:
		return raw3 | ID(s[0])<<16 | ID(s[1])<<8 | ID(s[2]), 3
	}
	return ID(r), n
}

// asciiLen finds how many bytes the ASCII piece at the start of s takes: a
// capitalised beginning of a word, up to three digits, blanks, or punctuation,
// never more than four bytes.
func asciiLen(s string) int {
	i := 0
	if s[0] == ' ' && len(s) > 1 && (isUpper(s[1]) || isDigit(s[1])) {
		i = 1
	}
	c := s[i]
	var same func(byte) bool
	limit := min(len(s), 4)
	switch {
	case isUpper(c):
		same = isLetter
	case isDigit(c):
		same, limit = isDigit, min(len(s), i+3)
	case isBlank(c):
		return blankLen(s[:limit], s)
	default:
		same = isMark
	}
	for i++; i < limit && same(s[i]); i++ {
	}
	return i
}

// blankLen takes a run of blanks but leaves the last one to a following word,
// so that a word has the same id after an indent as after another word.
func blankLen(head, s string) int {
	i := 1
	for i < len(head) && isBlank(head[i]) {
		if head[i] == ' ' && i+1 < len(s) && (isLetter(s[i+1]) || isDigit(s[i+1])) {
			break
		}
		i++
	}
	return i
}

func packASCII(s string) ID {
	v := ID(0)
	for i := range len(s) {
		v = v<<7 | ID(s[i])
	}
	switch len(s) {
	case 1:
		return ascii1 | v
	case 2:
		return ascii2 | v
	case 3:
		return ascii3 | v
	}
	return ascii4 | v
}

// Append adds the bytes of id to dst. It reports false, and adds nothing, when
// no text and no structure has this id.
func Append(dst []byte, id ID) ([]byte, bool) {
	switch {
	case id >= wordFirst && id < wordBlank:
		return appendWord(dst, id-wordFirst), id > wordFirst
	case id >= wordBlank && id < wordEnd:
		if id == wordBlank {
			return dst, false
		}
		return appendWord(append(dst, ' '), id-wordBlank), true
	case id >= ascii4 && id < ascii3:
		return append(dst, byte(id>>21&0x7f), byte(id>>14&0x7f), byte(id>>7&0x7f), byte(id&0x7f)), true
	case id >= ascii3 && id < ascii3+1<<21:
		return append(dst, byte(id>>14&0x7f), byte(id>>7&0x7f), byte(id&0x7f)), true
	case id >= ascii2 && id < ascii2+1<<14:
		return append(dst, byte(id>>7&0x7f), byte(id&0x7f)), true
	case id >= ascii1 && id < ascii1+1<<7:
		return append(dst, byte(id&0x7f)), true
	case id >= planeFirst && id < planeEnd:
		return utf8.AppendRune(dst, rune(id)), true
	case id >= raw3 && id < raw2:
		return append(dst, byte(id>>16), byte(id>>8), byte(id)), true
	case id >= raw2 && id < raw2+1<<16:
		return append(dst, byte(id>>8), byte(id)), true
	case id >= raw1 && id < rawEnd:
		return append(dst, byte(id)), true
	}
	return dst, id > 0 && id < specialEnd
}

func appendWord(dst []byte, v ID) []byte {
	var letters [wordLetters]byte
	i := len(letters)
	for v > 0 {
		i--
		// A digit of zero never comes out of Encode; an id made by hand may hold
		// one and shows as a backquote, the byte before 'a'.
		letters[i] = byte('a' - 1 + v%27)
		v /= 27
	}
	return append(dst, letters[i:]...)
}

// Decode gives the text of ids, or the position of the first one that is no
// token. Special tokens give no text.
func Decode(ids []ID) (text string, bad int) {
	out := make([]byte, 0, 5*len(ids))
	for i, id := range ids {
		var ok bool
		if out, ok = Append(out, id); !ok {
			return "", i
		}
	}
	return string(out), -1
}

func isLower(c byte) bool  { return c >= 'a' && c <= 'z' }
func isUpper(c byte) bool  { return c >= 'A' && c <= 'Z' }
func isLetter(c byte) bool { return isLower(c | 0x20) }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isBlank(c byte) bool  { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// isMark tells punctuation and control bytes, all that is ASCII and neither
// letter, digit nor blank.
func isMark(c byte) bool {
	return c < utf8.RuneSelf && !isLetter(c) && !isDigit(c) && !isBlank(c)
}
