package sim_test

import (
	"net/http"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/engy-ai/engy/services/sim"
)

func TestModelsAreReadFromOneLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]sim.Models{
		"a":                      {{ID: "a"}},
		"a=8192":                 {{ID: "a", Window: 8192}},
		"a+image":                {{ID: "a", Media: []string{"image"}}},
		"a=8192+image+audio , b": {{ID: "a", Window: 8192, Media: []string{"image", "audio"}}, {ID: "b"}},
	} {
		var got sim.Models
		require.NoError(t, got.UnmarshalText([]byte(line)))
		require.Equal(t, want, got, line)
		require.NoError(t, sim.Config{Listen: "x", Models: got}.Validate(), line)
	}
	for _, line := range []string{
		"", "a=", "a=many", "a=1=2", "a=-1", "a,a", "a,", "=5", "+image",
		"a+", "a+picture", "a+image+", "a++image", "a+video", "a+text", "a+Image", "a+image=8192",
	} {
		var got sim.Models
		err := got.UnmarshalText([]byte(line))
		if err == nil {
			err = sim.Config{Listen: "x", Models: got}.Validate()
		}
		require.Error(t, err, line)
	}
}

func TestModelsReadWhatTheyWrite(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.Custom(func(t *rapid.T) sim.Model {
			m := sim.Model{ID: rapid.StringMatching(`[a-z0-9.-]{1,12}`).Draw(t, "id"), Window: rapid.IntRange(0, sim.WindowMax).Draw(t, "window")}
			if media := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"image", "audio"}), 0, 2, rapid.ID).Draw(t, "media"); len(media) > 0 {
				m.Media = media
			}
			return m
		})
		want := sim.Models(rapid.SliceOfN(one, 1, 5).Draw(t, "models"))
		var got sim.Models
		require.NoError(t, got.UnmarshalText([]byte(want.String())))
		require.Equal(t, want, got)
	})
}

func TestModelsTellWhatTheyTake(t *testing.T) {
	t.Parallel()
	e := start(t, func(c *sim.Config) {
		c.Models = sim.Models{{ID: "reads"}, {ID: "sees", Media: []string{"image"}}, {ID: "hears", Media: []string{"image", "audio"}}}
	})
	var list struct {
		Data []struct {
			ID     string
			Inputs []string `json:"input_modalities"`
		}
	}
	_, body := e.get(t, "/v1/models")
	require.NoError(t, json.Unmarshal([]byte(body), &list, json.MatchCaseInsensitiveNames(true)))
	takes := map[string][]string{}
	for _, m := range list.Data {
		takes[m.ID] = m.Inputs
	}
	require.Equal(t, map[string][]string{"reads": {"text"}, "sees": {"text", "image"}, "hears": {"text", "image", "audio"}}, takes)
}

// What a tool shows follows its message in a turn of the user, which is no new
// question.
func TestPicturesBehindAToolsMessageAreNoQuestion(t *testing.T) {
	t.Parallel()
	e := start(t)
	picture := object{"type": "image_url", "image_url": object{"url": "data:image/png;base64,AAAA"}}
	round := func(last ...any) object {
		return weather(object{"model": "m", "messages": append([]any{
			object{"role": "user", "content": "look [[sim tool=get_tide echo_result record=round]]"},
			object{"role": "assistant", "content": nil, "tool_calls": []any{object{"id": "A", "type": "function", "function": object{"name": "get_tide", "arguments": "{}"}}}},
			object{"role": "tool", "tool_call_id": "A", "content": "a tide"},
		}, last...)})
	}
	r := e.chat(t, round(object{"role": "user", "content": []any{picture}}))
	require.Equal(t, "a tide", r.Choices[0].Message.Content)
	require.Equal(t, "stop", r.Choices[0].Finish)
	status, kept := e.get(t, "/sim/kept/round")
	require.Equal(t, http.StatusOK, status, "its directives are those of the last question")
	require.Contains(t, kept, "image_url")

	r = e.chat(t, round(object{"role": "user", "content": []any{picture, object{"type": "text", "text": "again [[sim tokens=3]]"}}}))
	require.Equal(t, 3, r.Usage.Completion, "with words it is one")
	require.NotEqual(t, "a tide", r.Choices[0].Message.Content)
}
