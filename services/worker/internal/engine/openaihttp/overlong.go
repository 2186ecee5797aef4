package openaihttp

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/engy-ai/engy/pkg/fault"
)

// What engines say when a prompt, or a prompt and the output asked for, does not
// fit their window. They have no code for it that tells the numbers; these are the
// words of vLLM, SGLang and llama.cpp, of their versions of two years.
var saysWindow = regexp.MustCompile(`(?i)context (?:length|size|window)(?: is| of)?(?: only)?\s*\(?(\d+)`) // read-only

var saysPrompt = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\((\d+) in the (?:messages|prompt)`),
	regexp.MustCompile(`(?i)(\d+) tokens from the input`),
	regexp.MustCompile(`(?i)prompt has (\d+) tokens`),
	regexp.MustCompile(`(?i)(\d+) (?:input|text input|prompt) tokens`),
	regexp.MustCompile(`(?i)(?:input|prompt|request) (?:length )?\(?(\d+)(?: tokens)?\)?`),
	regexp.MustCompile(`(?i)requested (\d+) tokens`),
} // read-only

// overlong reads such a refusal; nil when the words are about something else.
func overlong(words string) *fault.Error {
	low := strings.ToLower(words)
	if !strings.Contains(low, "context") || !strings.Contains(low, "token") {
		return nil
	}
	window := number(saysWindow, words)
	if window == 0 {
		return nil
	}
	for _, says := range saysPrompt {
		if tokens := number(says, words); tokens > 0 {
			f := fault.TooLong(tokens, window)
			if tokens < window {
				// The prompt fits; what was asked for beside it does not.
				f.Message = words
			}
			return f
		}
	}
	return &fault.Error{Code: fault.Overlong, Message: words}
}

// room is what an answer may have after an engine refused one that would not have
// fit behind its prompt, 0 when that was not why. Nobody but the engine knows how
// long a prompt is; the limit is lowered then, as it is where it can be foreseen.
func (x *exchange) room(err error) int64 {
	var f *fault.Error
	if x.answer.made > 0 || !errors.As(err, &f) || f.Code != fault.Overlong {
		return 0
	}
	if room := f.Window - f.Tokens; f.Tokens > 0 && room < outputTokens(x.req) {
		return max(0, room)
	}
	return 0
}

func number(r *regexp.Regexp, words string) int64 {
	m := r.FindStringSubmatch(words)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
