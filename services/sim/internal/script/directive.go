package script

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Forever is a wait without an end of its own.
const Forever = time.Duration(1<<63 - 1)

// Unset marks a number or duration that the request said nothing about.
const Unset = -1

// Bounds of the values of directives.
const (
	// CountMax bounds every count of tokens, and so the length of an answer: a
	// plan is made whole before its first token leaves.
	CountMax = 1 << 20
	// LineBytesMax bounds the one line that big asks for.
	LineBytesMax = 32 << 20
	// ArgsBytesMax bounds the arguments that args spells out; longer ones are what
	// big is for.
	ArgsBytesMax = 64 << 10
	// CallsMax bounds the tool calls of one answer.
	CallsMax = 128
	// WaitMax bounds every duration; "forever" is the only thing longer.
	WaitMax = 24 * time.Hour
	// slowHealthUsual is the delay of /health when no duration is given.
	slowHealthUsual = 30 * time.Second
)

// Settings are the directives of one request: how it should look, and what
// should go wrong. See the package doc of sim for what each key does.
type Settings struct {
	Tokens, Think         int // Unset when not given
	TTFT, ITL             time.Duration
	Hang                  time.Duration // zero for none
	Cut, Stall, Malformed int           // Unset when not given
	Die                   int           // Unset when not given
	Status                int           // zero for none
	Big                   int           // zero for none
	Calls                 int           // zero when not given
	SlowHealth            time.Duration // Unset when not given

	Tool           string
	Args           string // empty when not given
	ReasoningField string
	Record         string
	Usage          Usage

	NullChoices, NullChoice, BadIndex, ObjectContent bool
	NoDone, NoFinish                                 bool
	ToolText, EmptyTools, EmptyArgs, RepeatArgs      bool
	Unicode, Split, Echo, EchoResult, AbortText      bool
}

// Usage says how the counts are to be reported.
type Usage struct {
	None, Wrong bool
	// Given, when set, replaces the true counts by the three below.
	Given                      bool
	Prompt, Completion, Cached int64
}

// Usual are the settings of a request without directives.
func Usual() Settings {
	return Settings{
		Tokens: Unset, Think: Unset, TTFT: Unset, ITL: Unset,
		Cut: Unset, Stall: Unset, Malformed: Unset, Die: Unset, SlowHealth: Unset,
	}
}

// Header reads directives in the form of the X-Sim header, "key=value; key".
func (s *Settings) Header(line string) error {
	return s.all(strings.Split(line, ";"))
}

// Marker reads the directives inside "[[sim …]]" marks of a text and returns
// the text without them. A mark that is not closed is ordinary text.
func (s *Settings) Marker(text string) (rest string, err error) {
	const opens, closes = "[[sim ", "]]"
	var words []string
	for {
		start := strings.Index(text, opens)
		if start < 0 {
			break
		}
		body, after, ok := strings.Cut(text[start+len(opens):], closes)
		if !ok {
			break
		}
		words = append(words, strings.Fields(body)...)
		text = strings.TrimRight(text[:start], " ") + after
	}
	return text, s.all(words)
}

// all applies every directive and reports all bad ones at once.
func (s *Settings) all(words []string) error {
	var bad []string
	for _, word := range words {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		if err := s.set(strings.TrimSpace(key), strings.TrimSpace(value)); err != nil {
			bad = append(bad, err.Error())
		}
	}
	if bad == nil {
		return nil
	}
	return fmt.Errorf("simulator directives: %s", strings.Join(bad, "; "))
}

func (s *Settings) set(key, value string) error {
	if flag, ok := s.flags()[key]; ok {
		return setFlag(flag, key, value)
	}
	if count, ok := s.counts()[key]; ok {
		n, err := number(key, value, countLimit(key))
		if err == nil {
			*count = n
		}
		return err
	}
	if wait, ok := s.waits()[key]; ok {
		d, err := duration(key, value)
		if err == nil {
			*wait = d
		}
		return err
	}
	return s.special(key, value)
}

// special sets the keys whose values have a form of their own.
func (s *Settings) special(key, value string) (err error) {
	switch key {
	case "die":
		s.Die = 0
		if value != "" {
			s.Die, err = number(key, value, CountMax)
		}
	case "status":
		s.Status, err = number(key, value, 599)
		if err == nil && s.Status < 400 {
			err = fmt.Errorf("status=%s is no error status", value)
		}
	case "slow_health":
		s.SlowHealth = slowHealthUsual
		if value != "" {
			s.SlowHealth, err = duration(key, value)
		}
	case "unicode":
		s.Unicode = true
		s.Split = s.Split || value == "split"
	case "tool":
		s.Tool, err = name(key, value)
	case "args":
		s.Args, err = arguments(value)
	case "record":
		s.Record, err = name(key, value)
	case "reasoning_field":
		if value != "reasoning" && value != "reasoning_content" {
			return fmt.Errorf("reasoning_field is reasoning or reasoning_content, not %q", value)
		}
		s.ReasoningField = value
	case "usage":
		return s.Usage.set(value)
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	return err
}

func (u *Usage) set(value string) error {
	switch value {
	case "none":
		u.None = true
		return nil
	case "wrong":
		u.Wrong = true
		return nil
	}
	parts := strings.Split(value, ":")
	if len(parts) != 3 {
		return fmt.Errorf("usage is none, wrong or prompt:completion:cached, not %q", value)
	}
	for i, to := range []*int64{&u.Prompt, &u.Completion, &u.Cached} {
		n, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil {
			return fmt.Errorf("usage: %q is no number", parts[i])
		}
		*to = n
	}
	u.Given = true
	return nil
}

func (s *Settings) flags() map[string]*bool {
	return map[string]*bool{
		"null_choices": &s.NullChoices, "null_choice": &s.NullChoice,
		"bad_index": &s.BadIndex, "object_content": &s.ObjectContent,
		"no_done": &s.NoDone, "no_finish": &s.NoFinish,
		"tool_text": &s.ToolText, "empty_tools": &s.EmptyTools,
		"empty_args": &s.EmptyArgs, "repeat_args": &s.RepeatArgs,
		"split": &s.Split, "echo": &s.Echo, "echo_result": &s.EchoResult, "abort_text": &s.AbortText,
	}
}

func (s *Settings) counts() map[string]*int {
	return map[string]*int{
		"tokens": &s.Tokens, "think": &s.Think, "cut": &s.Cut, "stall": &s.Stall,
		"malformed": &s.Malformed, "big": &s.Big, "calls": &s.Calls,
	}
}

func (s *Settings) waits() map[string]*time.Duration {
	return map[string]*time.Duration{"ttft": &s.TTFT, "itl": &s.ITL, "hang": &s.Hang}
}

// Keys lists every directive, for documentation and its test.
func Keys() []string {
	var s Settings
	keys := []string{"die", "status", "slow_health", "unicode", "tool", "args", "record", "reasoning_field", "usage"}
	keys = slices.AppendSeq(keys, maps.Keys(s.flags()))
	keys = slices.AppendSeq(keys, maps.Keys(s.counts()))
	keys = slices.AppendSeq(keys, maps.Keys(s.waits()))
	slices.Sort(keys)
	return keys
}

func countLimit(key string) int {
	switch key {
	case "big":
		return LineBytesMax
	case "calls":
		return CallsMax
	}
	return CountMax
}

func setFlag(flag *bool, key, value string) error {
	switch value {
	case "", "true", "1":
		*flag = true
	case "false", "0":
		*flag = false
	default:
		return fmt.Errorf("%s is a switch, not %q", key, value)
	}
	return nil
}

func number(key, value string, limit int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > limit {
		return 0, fmt.Errorf("%s is a number from 0 to %d, not %q", key, limit, value)
	}
	return n, nil
}

func duration(key, value string) (time.Duration, error) {
	if value == "forever" && key == "hang" {
		return Forever, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > WaitMax {
		return 0, fmt.Errorf("%s is a duration such as 50ms, up to %s, not %q", key, WaitMax, value)
	}
	return d, nil
}

// arguments reads the text of a call's arguments. A directive ends at a blank,
// so blanks and the like are written as in a URL.
func arguments(value string) (string, error) {
	text, err := url.PathUnescape(value)
	if err != nil || text == "" || !utf8.ValidString(text) {
		return "", fmt.Errorf("args wants a text with %%XX for blanks, not %q", value)
	}
	if len(text) > ArgsBytesMax {
		return "", fmt.Errorf("args has %d bytes, more than %d", len(text), ArgsBytesMax)
	}
	return text, nil
}

func name(key, value string) (string, error) {
	if value == "" {
		return "", fmt.Errorf("%s wants a name", key)
	}
	return value, nil
}
