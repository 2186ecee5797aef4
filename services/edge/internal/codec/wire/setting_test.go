package wire_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

func TestASettingIsCheckedAtItsBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ good, bad []string }{
		"temperature":        {[]string{"0", "-0.0", "1e-400", "2.5", "3.4e38"}, []string{"-1e-9", "3.5e38", "1e999", "true"}},
		"top_p":              {[]string{"0", "0.0", "1", "1e0"}, []string{"1.0000001", "-1", `"1"`}},
		"presence_penalty":   {[]string{"-2", "5"}, []string{"-1e999", "[]", "{}"}},
		"repetition_penalty": {[]string{"1.1"}, []string{`""`}},
		"top_k":              {[]string{"-1", "0", "2147483647"}, []string{"-2", "2147483648", "1.5", `"1"`}},
		"min_tokens":         {[]string{"0"}, []string{"-1"}},
		"seed": {
			[]string{"-9223372036854775808", "18446744073709551615", "0"},
			[]string{"-9223372036854775809", "18446744073709551616", "1.5", "1e400"},
		},
		"stop":                {[]string{`""`, `[]`, `["a", "b"]`}, []string{`[1]`, `["a",["b"]]`, "{}", "5", "true"}},
		"stop_token_ids":      {[]string{"[]", "[ -1, 5 ]"}, []string{"5", "[5.5]", "[null]", "[2147483648]"}},
		"logit_bias":          {[]string{"{}", `{"5":-100, "a":0.5}`}, []string{"[1]", `{"5":null}`, `{"5":{}}`, `""`}},
		"response_format":     {[]string{"{}"}, []string{`"text"`, "[]"}},
		"parallel_tool_calls": {[]string{"true", "false"}, []string{"1", `"true"`, "{}"}},
		"unheard_of":          {[]string{"[]", "1e999", `"x"`, "-1"}, nil},
	} {
		for _, value := range append(c.good, "null") {
			fields := []llm.Field{{Name: "before", Value: []byte("1.0")}, {Name: name, Value: []byte(value)}}
			require.NoError(t, wire.Settings(fields), "%s %s", name, value)
			require.Equal(t, "1.0 "+value, string(fields[0].Value)+" "+string(fields[1].Value), "bytes are kept")
		}
		for _, value := range c.bad {
			err := wire.Settings([]llm.Field{{Name: name, Value: []byte(value)}})
			require.True(t, fault.Is(err, fault.Invalid), "%s %s", name, value)
			require.Equal(t, name, fault.Of(err).Field)
			require.Contains(t, fault.Of(err).Message, name+" must be ")
		}
	}
}

func TestAListOfWholeNumbersIsWrittenPlainly(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{`[1e2]`: `[100]`, `[ 7, 1.0 ]`: `[7,1]`, `[ 7 ]`: `[ 7 ]`, `[-0, -2e1]`: `[0,-20]`} {
		fields := []llm.Field{{Name: "stop_token_ids", Value: []byte(sent)}}
		require.NoError(t, wire.Settings(fields))
		require.Equal(t, want, string(fields[0].Value), sent)
	}
}

func TestALongSettingIsNotDear(t *testing.T) {
	t.Parallel()
	const many = 4 << 20
	zeros := strings.Repeat("0", many)
	begun := time.Now()
	for _, value := range []string{"1" + zeros, "0." + zeros + "1", "1e" + zeros + "1", "1e-" + strings.Repeat("9", many)} {
		_ = wire.Settings([]llm.Field{{Name: "temperature", Value: []byte(value)}, {Name: "seed", Value: []byte(value)}})
	}
	require.Less(t, time.Since(begun), 10*time.Second)
}
