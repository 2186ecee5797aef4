package bus

import (
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/pkg/fault"
)

// quickMessages are those that are written and read by hand.
func quickMessages() []any {
	return []any{&Ticket{}, &Claim{}, &Grant{}, &Dispatch{}, &Hold{}, &HoldAnswer{}, &UsageEvent{}}
}

// draw fills a message with anything that its types can hold.
func draw(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			at := time.Unix(rapid.Int64Range(-1<<33, 1<<35).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
			v.Set(reflect.ValueOf(at))
			return
		}
		for i := range v.NumField() {
			draw(t, v.Field(i))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "set") {
			v.Set(reflect.New(v.Type().Elem()))
			draw(t, v.Elem())
		}
	case reflect.String:
		v.SetString(rapid.OneOf(rapid.SampledFrom([]string{"", "0a", "us", "glm-5.2"}), rapid.String()).Draw(t, "text"))
	case reflect.Int, reflect.Int64:
		bits := int64(1<<31 - 1)
		v.SetInt(rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(-bits, bits)).Draw(t, "number"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	default:
		panic("a kind that no message had before: " + v.Kind().String())
	}
}

func general(t require.TestingT, v any) []byte {
	raw, err := json.Marshal(v, jsontext.PreserveRawStrings(true), jsontext.AllowDuplicateNames(true))
	require.NoError(t, err)
	return raw
}

func TestBothWaysOfMessagesAgree(t *testing.T) {
	t.Parallel()
	for _, v := range quickMessages() {
		typ := reflect.TypeOf(v).Elem()
		t.Run(typ.Name(), func(t *testing.T) {
			t.Parallel()
			usual := 0
			agree := func(t *rapid.T) {
				in := reflect.New(typ)
				draw(t, in.Elem())
				want := general(t, in.Interface())
				if quick, ok := in.Interface().(quickWriter).appendQuick(nil); ok {
					usual++
					require.Equal(t, string(want), string(quick))
					out := reflect.New(typ)
					require.True(t, out.Interface().(quickReader).readQuick(&reader{rest: string(want)}), string(want))
					require.Equal(t, in.Interface(), out.Interface())
				}
				out := reflect.New(typ)
				require.NoError(t, Unmarshal(want, out.Interface()))
				require.Equal(t, in.Interface(), out.Interface())
			}
			// Few of what is drawn may be usual; none in so many would be odd.
			for try := 0; usual == 0 && try < 20; try++ {
				rapid.Check(t, agree)
			}
			require.NotZero(t, usual)
		})
	}
}

func TestWhatIsUnusualTakesTheGeneralWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		into any
		raw  string
		want any
	}{
		"another order":    {&Claim{}, `{"worker":"w","job":"0a"}`, &Claim{Job: "0a", Worker: "w"}},
		"a member more":    {&Claim{}, `{"job":"0a","worker":"w","new":1}`, &Claim{Job: "0a", Worker: "w"}},
		"white space":      {&Claim{}, "{ \"job\":\"0a\",\"worker\":\"w\"}\n", &Claim{Job: "0a", Worker: "w"}},
		"a refused hold":   {&HoldAnswer{}, `{"code":"no_funds","message":"no"}`, &HoldAnswer{Code: fault.NoFunds, Message: "no"}},
		"half of a ticket": {&Ticket{}, `{"job":"0a"}`, &Ticket{Job: "0a"}},
	} {
		require.NoError(t, Unmarshal([]byte(c.raw), c.into), name)
		require.Equal(t, c.want, c.into, name)
	}
	for _, raw := range []string{``, `{"job":"0a`, `{"job":"0a","worker":"w"}x`, `{"job":"0a\`, `[]`} {
		c := Claim{}
		require.False(t, c.readQuick(&reader{rest: raw}), raw)
		require.Error(t, Unmarshal([]byte(raw), &c), raw)
	}
}

// What is read by hand is what the general way would read.
func FuzzReadQuick(f *testing.F) {
	f.Add([]byte(`{"job":"0a","worker":"w","chunk":2,"attempt":1}`))
	f.Add([]byte(`{"verdict":"granted","attempt":01}`))
	f.Add([]byte(`{"micro":123456789012345678901}`))
	f.Add(general(f, &Ticket{Job: "0a", Deadline: time.Unix(1_790_000_000, 5).UTC(), Trace: "\n"}))
	f.Add(general(f, &Hold{Job: "0a", Expires: time.Unix(1_790_000_000, 0).UTC(), Raise: true}))
	f.Add(general(f, &UsageEvent{ID: "0a", Time: time.Unix(1_790_000_000, 0).UTC()}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, quick := range quickMessages() {
			if !quick.(quickReader).readQuick(&reader{rest: string(raw)}) {
				continue
			}
			slow := reflect.New(reflect.TypeOf(quick).Elem()).Interface()
			require.NoError(t, json.Unmarshal(raw, slow, jsontext.AllowDuplicateNames(true)), string(raw))
			require.Equal(t, slow, quick, string(raw))
		}
	})
}
