package api

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/engy-ai/engy/services/sim/internal/pace"
	"github.com/engy-ai/engy/services/sim/internal/register"
	"github.com/engy-ai/engy/services/sim/internal/script"
	"github.com/engy-ai/engy/services/sim/internal/tokenizer"
	"github.com/engy-ai/engy/services/sim/internal/wire"
)

// page sends a value as JSON.
func (s *Server) page(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		s.fail(w, &wire.Failure{Status: http.StatusInternalServerError, Message: "the answer cannot be written as JSON"})
		return
	}
	s.send(w, http.StatusOK, body)
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID          string `json:"id"`
		Object      string `json:"object"`
		Created     int64  `json:"created"`
		OwnedBy     string `json:"owned_by"`
		MaxModelLen int    `json:"max_model_len"`
		// Modalities are what the model takes.
		Modalities []string `json:"input_modalities"`
	}
	list := make([]model, 0, len(s.opt.Models))
	for _, m := range s.opt.Models {
		list = append(list, model{m.ID, "model", s.started.Unix(), Fingerprint, m.Window, append([]string{"text"}, m.Media...)})
	}
	s.page(w, struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", list})
}

func (s *Server) modelInfo(w http.ResponseWriter, _ *http.Request) {
	s.page(w, struct {
		ModelPath    string `json:"model_path"`
		IsGeneration bool   `json:"is_generation"`
		MaxModelLen  int    `json:"max_model_len"`
	}{s.opt.Models[0].ID, true, s.opt.Models[0].Window})
}

// tokenize counts a prompt, or messages as the chat template writes them.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var req wire.Tokenize
	_, f := s.read(w, r, &req)
	var m Model
	if f == nil {
		m, f = s.model(req.Model)
	}
	var ids []tokenizer.ID
	if f == nil {
		ids, f = s.tokenizeIDs(&req)
	}
	if f != nil {
		s.fail(w, f)
		return
	}
	answer := struct {
		Count       int            `json:"count"`
		MaxModelLen int            `json:"max_model_len"`
		Tokens      []tokenizer.ID `json:"tokens"`
		TokenStrs   []string       `json:"token_strs,omitempty"`
	}{Count: len(ids), MaxModelLen: m.Window, Tokens: ids}
	if req.ReturnTokenStrs {
		for _, id := range ids {
			text, _ := tokenizer.Append(nil, id)
			answer.TokenStrs = append(answer.TokenStrs, strings.ToValidUTF8(string(text), "\uFFFD"))
		}
	}
	s.page(w, answer)
}

func (s *Server) tokenizeIDs(req *wire.Tokenize) ([]tokenizer.ID, *wire.Failure) {
	switch {
	case req.Prompt != nil:
		return tokenizer.Encode([]tokenizer.ID{}, *req.Prompt), nil
	case req.Messages == nil:
		return nil, wire.Wrong("prompt", "prompt or messages is missing")
	}
	chat, f := template(req.Messages, req.Tools)
	if f != nil {
		return nil, f
	}
	chat.Bare = req.AddGenerationPrompt != nil && !*req.AddGenerationPrompt
	chat.Think = tokenizer.ThinkOff
	if s.think(script.Usual(), &wire.Chat{TemplateKwargs: req.TemplateKwargs}) > 0 {
		chat.Think = tokenizer.ThinkOn
	}
	return chat.Prompt(), nil
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Tokens []tokenizer.ID `json:"tokens"`
	}
	_, f := s.read(w, r, &req)
	if f != nil {
		s.fail(w, f)
		return
	}
	text, bad := tokenizer.Decode(req.Tokens)
	if bad >= 0 {
		s.fail(w, wire.Wrong("tokens", "token id %d at position %d is out of the vocabulary", req.Tokens[bad], bad))
		return
	}
	s.page(w, map[string]string{"prompt": strings.ToValidUTF8(text, "\uFFFD")})
}

// abort ends a request by its rid, or all. Like SGLang it says 200 whether or
// not there was one.
func (s *Server) abort(w http.ResponseWriter, r *http.Request) {
	var req struct {
		RID      string `json:"rid"`
		AbortAll bool   `json:"abort_all"`
	}
	if _, f := s.read(w, r, &req); f != nil {
		s.fail(w, f)
		return
	}
	if req.AbortAll {
		s.register.AbortAll(register.ErrAborted)
	} else {
		s.register.Abort(req.RID)
	}
	w.WriteHeader(http.StatusOK)
}

// health says that the server takes requests, after the delay that a directive
// may have set.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if err := pace.New(0, 0).Wait(r.Context(), time.Duration(s.healthDelay.Load())); err != nil {
		return
	}
	select {
	case <-s.closing:
		s.fail(w, &wire.Failure{Status: http.StatusServiceUnavailable, Message: errClosing.Error()})
	default:
		s.page(w, map[string]string{"status": "ok"})
	}
}

func (s *Server) requests(w http.ResponseWriter, _ *http.Request) {
	s.page(w, s.register.Counts())
}

func (s *Server) keptBody(w http.ResponseWriter, r *http.Request) {
	body, ok := s.register.Kept(r.PathValue("name"))
	if !ok {
		s.fail(w, &wire.Failure{Status: http.StatusNotFound, Message: "no body was kept under this name"})
		return
	}
	s.send(w, http.StatusOK, body)
}

// metrics speaks the text form of Prometheus with the names of vLLM.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	c := s.register.Counts()
	var b strings.Builder
	gauge := func(name, kind string) { fmt.Fprintf(&b, "# TYPE vllm:%s %s\n", name, kind) }
	gauge("num_requests_running", "gauge")
	for _, m := range s.opt.Models {
		fmt.Fprintf(&b, "vllm:num_requests_running{model_name=%q} %d\n", m.ID, s.register.Running(m.ID))
	}
	gauge("num_requests_waiting", "gauge")
	for _, m := range s.opt.Models {
		fmt.Fprintf(&b, "vllm:num_requests_waiting{model_name=%q} 0\n", m.ID)
	}
	used := 0.0
	if s.opt.CacheBlocks > 0 {
		used = float64(s.cache.Len()) / float64(s.opt.CacheBlocks)
	}
	// Counters are for the whole simulator; the first model stands for it.
	first := s.opt.Models[0].ID
	for _, m := range []struct {
		name, kind string
		value      float64
	}{
		{"kv_cache_usage_perc", "gauge", used},
		{"prompt_tokens_total", "counter", float64(c.PromptTokens)},
		{"generation_tokens_total", "counter", float64(c.CompletionTokens)},
		{"prefix_cache_queries_total", "counter", float64(c.PromptTokens)},
		{"prefix_cache_hits_total", "counter", float64(c.CachedTokens)},
	} {
		gauge(m.name, m.kind)
		fmt.Fprintf(&b, "vllm:%s{model_name=%q} %g\n", m.name, first, m.value)
	}
	gauge("request_success_total", "counter")
	fmt.Fprintf(&b, "vllm:request_success_total{model_name=%q,finished_reason=\"stop\"} %d\n", first, c.Finished)
	fmt.Fprintf(&b, "vllm:request_success_total{model_name=%q,finished_reason=\"abort\"} %d\n", first, c.Aborted)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	if _, err := w.Write([]byte(b.String())); err != nil {
		s.opt.Log.Debug("client left before the metrics")
	}
}
