package responses

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
	"github.com/engy-ai/engy/services/edge/internal/codec/wire"
)

// input is a text or a list of items.
type input struct {
	items []item
}

// UnmarshalJSONFrom reads either form. A text is what one user says.
func (in *input) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case '"':
		it := item{Role: string(llm.User)}
		in.items = []item{it}
		return in.items[0].Content.UnmarshalJSONFrom(dec)
	case '[':
		return json.UnmarshalDecode(dec, &in.items)
	case 'n':
		return dec.SkipValue()
	}
	return fault.At("input", "input must be a string or a list of items")
}

// item is any item of an input. What a kind of item does not have stays empty;
// members whose shape depends on the kind are read when it is known.
type item struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	Role      string         `json:"role"`
	Content   content        `json:"content"`
	Summary   content        `json:"summary"`
	Encrypted jsontext.Value `json:"encrypted_content"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Arguments jsontext.Value `json:"arguments"`
	Input     jsontext.Value `json:"input"`
	Output    content        `json:"output"`
	Action    jsontext.Value `json:"action"`
	Operation jsontext.Value `json:"operation"`
	Status    string         `json:"status"`
}

// content is a text, or another value that is read when its place is known.
type content struct {
	text   llm.Verbatim
	isText bool
	raw    jsontext.Value
}

// UnmarshalJSONFrom keeps the value.
func (c *content) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	kind := dec.PeekKind()
	raw, err := dec.ReadValue()
	switch {
	case err != nil:
		return err
	case kind == '"':
		c.text, c.isText = llm.Verbatim(raw), true
	case kind != 'n':
		c.raw = raw
	}
	return nil
}

// part is a part of a content.
type part struct {
	Type     string      `json:"type"`
	Text     wire.Raw    `json:"text"`
	Refusal  wire.Raw    `json:"refusal"`
	ImageURL wire.Raw    `json:"image_url"`
	Audio    *inputAudio `json:"input_audio"`
}

type inputAudio struct {
	Data   llm.Base64 `json:"data"`
	Format string     `json:"format"`
}

// list reads a content that must be a list of parts.
func (c *content) list(field string) ([]part, error) {
	if c.raw == nil {
		return nil, nil
	}
	var list []part
	if c.raw.Kind() != '[' || json.Unmarshal(c.raw, &list) != nil {
		return nil, fault.At(field, field+" must be a string or a list of parts")
	}
	return list, nil
}

// parts reads a content for the model. Parts of kinds that are not known are
// left out; files are refused, since the model would answer as if it had read them.
func (c *content) parts(field string) ([]llm.Part, error) {
	if c.isText {
		return []llm.Part{{Text: c.text}}, nil
	}
	list, err := c.list(field)
	if err != nil {
		return nil, err
	}
	var out []llm.Part
	for i := range list {
		p, at := &list[i], field+"["+strconv.Itoa(i)+"]"
		var made llm.Part
		switch p.Type {
		case "input_text", "output_text", "text", "summary_text", "reasoning_text", "":
			if p.blank() {
				return nil, fault.At(at, at+" must be a part with a type")
			}
			made, err = text(at+".text", p.Text)
		case "refusal":
			made, err = text(at+".refusal", p.Refusal)
		case "input_image", "image_url":
			made.Media, err = image(at+".image_url", p.ImageURL)
		case "input_audio":
			if p.Audio == nil {
				return nil, fault.At(at+".input_audio", at+".input_audio must be an object with data and a format")
			}
			made.Media, err = wire.Audio(at+".input_audio.data", p.Audio.Format, p.Audio.Data)
		case "input_file", "input_video", "video_url":
			return nil, fault.At(at+".type", "files and videos are not taken: text and inline images are")
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

// blank tells that a part says nothing of what it is, as null does: one without a
// type is a text only if it has one.
func (p *part) blank() bool {
	return p.Type == "" && (len(p.Text) == 0 || p.Text.Kind() == 'n')
}

// text makes a part of a text.
func text(field string, raw wire.Raw) (llm.Part, error) {
	switch raw.Kind() {
	case '"':
		return llm.Part{Text: llm.Verbatim(raw)}, nil
	case 'n', 0:
		return llm.Part{}, nil
	}
	return llm.Part{}, fault.At(field, field+" must be a string")
}

// image reads an inline image, its address bare or in an object.
func image(field string, raw wire.Raw) (*llm.Media, error) {
	var object struct {
		URL wire.Raw `json:"url"`
	}
	switch {
	case raw.Kind() == '"':
		return wire.DataURI(field, raw)
	case raw.Kind() == '{' && json.Unmarshal(raw, &object) == nil:
		return wire.DataURI(field, object.URL)
	}
	return nil, fault.At(field, field+" must be a data URI: images must be inline, no files are stored")
}

// plain joins the texts of a content, with a gap between them.
func (c *content) plain(field, gap string) (string, error) {
	list, err := c.list(field)
	if err != nil {
		return "", err
	}
	if c.isText {
		return decoded(field, wire.Raw(c.text))
	}
	texts := make([]string, 0, len(list))
	for _, p := range list {
		s, err := decoded(field, p.Text)
		if err != nil {
			return "", err
		}
		texts = append(texts, s)
	}
	return strings.Join(texts, gap), nil
}

// decoded gives the characters of a JSON string; null and nothing have none.
func decoded[V ~[]byte](field string, raw V) (string, error) {
	t, err := wire.Text(field, raw)
	if err != nil {
		return "", err
	}
	s, err := t.Decode()
	if err != nil {
		return "", fault.At(field, field+" must be a string")
	}
	return s, nil
}

// sealMark begins thoughts that were sealed here, so that those which another
// platform sealed are not taken for text.
const sealMark = "engy1:"

// seal writes thoughts in the form in which callers send them back unread.
func seal(thoughts string) string {
	return base64.StdEncoding.EncodeToString([]byte(sealMark + thoughts))
}

// unseal reads what seal wrote.
func unseal(sealed string) (string, bool) {
	raw, err := base64.StdEncoding.DecodeString(sealed)
	thoughts, ours := strings.CutPrefix(string(raw), sealMark)
	if err != nil || !ours || !utf8.ValidString(thoughts) {
		return "", false
	}
	return thoughts, true
}

// thoughts reads a reasoning item: the thoughts themselves when they are there,
// sealed ones, or else their summary.
func (it *item) thoughts(field string) (string, error) {
	text, err := it.Content.plain(field+".content", "")
	if err != nil || text != "" {
		return text, err
	}
	if it.Encrypted.Kind() == '"' {
		sealed, err := decoded(field+".encrypted_content", it.Encrypted)
		if err != nil {
			return "", err
		}
		if text, ok := unseal(sealed); ok {
			return text, nil
		}
	}
	return it.Summary.plain(field+".summary", "\n\n")
}
