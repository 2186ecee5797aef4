package openaihttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/services/worker/internal/engine/facts"
)

type modelList struct {
	Data []struct {
		ID      string `json:"id"`
		OwnedBy string `json:"owned_by"`
		Window  int64  `json:"max_model_len"`
		// Modalities are told by few.
		Modalities []string `json:"input_modalities"`
	} `json:"data"`
}

// Facts asks the engine what it serves; see the interface in package engine.
func (e *Engine) Facts(ctx context.Context) (facts.Engine, error) {
	var list modelList
	if err := e.look(ctx, "/v1/models", &list); err != nil {
		return facts.Engine{}, ended(ctx, err)
	}
	q := e.kind.Load()
	if !e.fixed {
		q = e.recognise(ctx, &list)
		e.kind.Store(q)
	}
	all := facts.Engine{Kind: q.kind}
	for i := range list.Data[:min(len(list.Data), ModelsMax)] {
		row := &list.Data[i]
		m := facts.Model{
			Name: row.ID, Window: max(0, row.Window),
			Modalities: []string{"text"}, Features: slices.Clone(q.features),
		}
		modalities(&m, slices.Contains(row.Modalities, "image"), slices.Contains(row.Modalities, "audio"))
		if q.describe != nil {
			q.describe(e, ctx, &m)
		}
		all.Models = append(all.Models, m)
	}
	return all, ended(ctx, context.Cause(ctx))
}

// Health asks the engine whether it can work; see the interface in package engine.
func (e *Engine) Health(ctx context.Context) error {
	heard := e.heard.Load()
	q, err := e.quirks(ctx)
	if err == nil {
		err = e.look(ctx, q.health, nil)
	}
	if err == nil {
		return nil
	}
	if err = ended(ctx, err); !silent(err) {
		return err
	}
	if e.heard.Load() != heard {
		return nil // it is busy with answers
	}
	return errors.Join(err, ErrLost)
}

// silent tells whether nothing came in answer to a question.
func silent(err error) bool { return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout) }

// quirks gives what is known of the kind, and asks when nothing is.
func (e *Engine) quirks(ctx context.Context) (*quirks, error) {
	if q := e.kind.Load(); q != nil {
		return q, nil
	}
	var list modelList
	if err := e.look(ctx, "/v1/models", &list); err != nil {
		return nil, err
	}
	q := e.recognise(ctx, &list)
	e.kind.Store(q)
	return q, nil
}

// recognise tells the kind by who owns the models, or by a page that no other
// kind has.
func (e *Engine) recognise(ctx context.Context, list *modelList) *quirks {
	rows := table()
	for i := range rows {
		for _, m := range list.Data {
			if slices.Contains(rows[i].owners, m.OwnedBy) {
				return &rows[i]
			}
		}
	}
	for i := range rows {
		var object map[string]jsontext.Value
		if rows[i].page != "" && e.look(ctx, rows[i].page, &object) == nil && len(object) > 0 {
			return &rows[i]
		}
	}
	return &rows[len(rows)-1]
}

// look gets a page within ProbeMax; a nil value takes any page.
func (e *Engine) look(ctx context.Context, path string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, ProbeMax)
	defer cancel()
	return e.page(ctx, path, nil, v)
}

// page reads a page of JSON into v.
func (e *Engine) page(ctx context.Context, path string, body []byte, v any) error {
	data, err := e.ask(ctx, path, body)
	if err != nil || v == nil {
		return err
	}
	if err := json.Unmarshal(data, v, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return errUnreadable(err)
	}
	return nil
}

// ask gets a page, or posts to it, with a body.
func (e *Engine) ask(ctx context.Context, path string, body []byte) ([]byte, error) {
	req, err := e.request(ctx, path, body)
	if err != nil {
		return nil, err
	}
	res, err := e.client.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, PageBytesMax))
	switch {
	case err != nil:
		return nil, unreachable(err)
	case res.StatusCode == http.StatusNotFound:
		return nil, fault.New(fault.Engine, "the engine does not know what it was asked")
	case res.StatusCode != http.StatusOK:
		return nil, e.hide(refused(res, data))
	}
	return data, nil
}

// sglang describes a model of SGLang, whose older versions do not tell the
// window in /v1/models.
func (e *Engine) sglang(ctx context.Context, m *facts.Model) {
	var info struct {
		Window int64 `json:"max_model_len"`
		Image  bool  `json:"has_image_understanding"`
		Audio  bool  `json:"has_audio_understanding"`
	}
	if e.look(ctx, "/get_model_info", &info) != nil {
		return
	}
	if m.Window == 0 {
		m.Window = max(0, info.Window)
	}
	modalities(m, info.Image, info.Audio)
	if m.Window > 0 {
		return
	}
	var server struct {
		Window int64 `json:"context_length"`
	}
	if e.look(ctx, "/get_server_info", &server) == nil {
		m.Window = max(0, server.Window)
	}
}

// llamacpp describes the one model of a llama.cpp server.
func (e *Engine) llamacpp(ctx context.Context, m *facts.Model) {
	var props struct {
		Settings struct {
			Window int64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Modalities struct {
			Vision bool `json:"vision"`
			Audio  bool `json:"audio"`
		} `json:"modalities"`
	}
	if e.look(ctx, "/props", &props) != nil {
		return
	}
	m.Window = max(0, props.Settings.Window)
	modalities(m, props.Modalities.Vision, props.Modalities.Audio)
}

// ollama describes a model of Ollama. What is loaded has a window of its own,
// often far below what the model could do, and longer prompts are cut silently.
func (e *Engine) ollama(ctx context.Context, m *facts.Model) {
	var show struct {
		Info         map[string]jsontext.Value `json:"model_info"`
		Capabilities []string                  `json:"capabilities"`
	}
	ctx, cancel := context.WithTimeout(ctx, ProbeMax)
	defer cancel()
	body := append(quote([]byte(`{"model":`), m.Name), '}')
	if e.page(ctx, "/api/show", body, &show) == nil {
		for name, value := range show.Info {
			var n int64
			if strings.HasSuffix(name, ".context_length") && json.Unmarshal(value, &n) == nil {
				m.Window = max(0, n)
			}
		}
		modalities(m, slices.Contains(show.Capabilities, "vision"), false)
		if slices.Contains(show.Capabilities, "tools") {
			m.Features = append(m.Features, "tools")
		}
	}
	var loaded struct {
		Models []struct {
			Name   string `json:"name"`
			Window int64  `json:"context_length"`
		} `json:"models"`
	}
	if e.page(ctx, "/api/ps", nil, &loaded) != nil {
		return
	}
	for _, l := range loaded.Models {
		if l.Name == m.Name && l.Window > 0 {
			m.Window = l.Window
		}
	}
}

func modalities(m *facts.Model, image, audio bool) {
	if image && !slices.Contains(m.Modalities, "image") {
		m.Modalities = append(m.Modalities, "image")
	}
	if audio && !slices.Contains(m.Modalities, "audio") {
		m.Modalities = append(m.Modalities, "audio")
	}
}
