package llm_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	v2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/llm"
)

// draw fills a value with anything that may travel.
func draw(t *rapid.T, v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *llm.Verbatim:
		*x = rapid.SampledFrom([]llm.Verbatim{nil, llm.NewVerbatim(""), llm.NewVerbatim("a\n\u2028\"<é"), []byte(`"\\u003c\\ud83d\\ude42"`)}).Draw(t, "verbatim")
		return
	case *llm.Base64:
		*x = rapid.SampledFrom([]llm.Base64{llm.Base64("AAAA"), llm.Base64("a/+="), {}}).Draw(t, "base64")
		return
	case *llm.TokenIDs:
		*x = rapid.SampledFrom([]llm.TokenIDs{nil, llm.TokenIDs("[1]"), llm.TokenIDs("[1,22,3]")}).Draw(t, "ids")
		return
	case *json.RawMessage:
		*x = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage("1"), json.RawMessage(`{"z":1,"a":[1E2,"\\u003c"]}`)}).Draw(t, "raw")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				draw(t, v.Field(i))
			}
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "set") {
			v.Set(reflect.New(v.Type().Elem()))
			draw(t, v.Elem())
		}
	case reflect.Slice:
		n := rapid.IntRange(-1, 2).Draw(t, "length")
		if n < 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			draw(t, v.Index(i))
		}
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"", "x", "naïve \"☃\"\n\x01", strings.Repeat("w ", 40)}).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(-3, 1<<40).Draw(t, "number"))
	default:
		panic("a kind that no request had before: " + v.Kind().String())
	}
}

// The way by hand writes what the general way writes, field by field, so a new
// field that it forgets is found here.
func TestARequestIsWrittenAsItsTagsSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var in llm.Request
		draw(t, reflect.ValueOf(&in).Elem())
		want, err := v2.Marshal(in, jsontext.PreserveRawStrings(true))
		require.NoError(t, err)
		got := in.AppendJSON(nil)
		require.Equal(t, string(want), string(got))
		require.Equal(t, "x"+string(want), string(in.AppendJSON([]byte("x"))))

		var out llm.Request
		require.NoError(t, v2.Unmarshal(got, &out))
		require.Equal(t, string(got), string(out.AppendJSON(nil)), "what was read is what was written")
	})
}

func TestMediaIsReadWhereItStands(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"kind":"image","type":"image/png","data":"QUJD"}`)
	var m llm.Media
	require.NoError(t, v2.Unmarshal(raw, &m))
	require.Equal(t, "QUJD", string(m.Data))
	require.Same(t, &raw[len(raw)-6], &m.Data[0], "no copy is made")
	require.NoError(t, v2.Unmarshal([]byte(`{"data":"Q\u0055J\/"}`), &m))
	require.Equal(t, "QUJ/", string(m.Data))
	require.NoError(t, json.Unmarshal([]byte(`{"data":"Q\u0055J\/"}`), &m))
	require.Equal(t, "QUJ/", string(m.Data))
	for _, bad := range []string{`{"data":7}`, `{"data":null}`, `{"data":["QQ"]}`} {
		require.Error(t, v2.Unmarshal([]byte(bad), &m), bad)
	}
}

// A large request is written into one piece of memory that is hardly larger.
func TestTheSizeOfARequestIsKnownBefore(t *testing.T) {
	t.Parallel()
	req := llm.Request{Items: []llm.Item{{Parts: []llm.Part{
		{Media: &llm.Media{Data: llm.Base64(strings.Repeat("A", 1<<20))}}, {Text: llm.NewVerbatim(strings.Repeat("é\n", 1<<19))},
	}}}}
	raw := req.AppendJSON(nil)
	require.GreaterOrEqual(t, req.SizeJSON(), len(raw))
	require.Less(t, req.SizeJSON(), len(raw)+len(raw)/50)
}
