package bench

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// target is where load goes.
type target struct {
	name    string
	addr    string
	secrets []string
	// direct goes to the engine alone, bare through the prototype; neither is
	// on the books.
	direct, bare bool
}

// product tells whether the target is what is measured.
func (t target) product() bool { return !t.direct && !t.bare }

// work is a kind of request. The engine is told in the prompt how to answer, so
// that the request is the same on both ways.
type work struct {
	name      string
	tokens    int
	ttft, itl time.Duration
	stream    bool
	// bytes is about how long the body is.
	bytes int
	// dialect is "", "messages" or "responses".
	dialect string
	// images is how many bytes of images the request holds.
	images int
}

const (
	bodyBytes  = 550
	indexWide  = 8
	indexBlank = "00000000"
)

// form is a request with two places to fill in: the key and the number that
// makes its prompt unlike the others.
type form struct {
	raw            []byte
	keyAt, indexAt int
}

func (w work) form(t target) form {
	mark := fmt.Sprintf("[[sim tokens=%d ttft=%s itl=%s think=0]]", w.tokens, w.ttft, w.itl)
	fill := max(w.bytes, bodyBytes) - 250
	asked, content, shut := model, `"`, `"`
	if w.images > 0 {
		asked, content, shut = seeing, "["+images(w.images)+`{"type":"text","text":"`, `"}]`
	}
	head := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":%t,`, asked, w.tokens, w.stream)
	if w.stream && w.dialect == "" {
		head += `"stream_options":{"include_usage":true},`
	}
	path, list := "/v1/chat/completions", "messages"
	switch w.dialect {
	case messages:
		path = "/v1/messages"
	case responses:
		path, list = "/v1/responses", "input"
		head = strings.Replace(head, "max_tokens", "max_output_tokens", 1)
	}
	head += `"` + list + `":[{"role":"user","content":` + content + strings.Repeat("lorem ipsum dolore ", fill/19+1)
	end := shut + `}]}`
	body := head + mark + " number " + indexBlank + end
	top := "POST " + path + " HTTP/1.1\r\nHost: " + t.addr +
		"\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\nAuthorization: Bearer "
	return form{
		raw:     []byte(top + t.secrets[0] + "\r\n\r\n" + body),
		keyAt:   len(top),
		indexAt: len(top) + len(t.secrets[0]) + 4 + len(body) - len(end) - indexWide,
	}
}

// imageCount is how many images a request with images holds.
const imageCount = 4

// The dialects beside chat.
const (
	messages  = "messages"
	responses = "responses"
)

// images writes parts with so many bytes of images in all.
func images(size int) string {
	raw := make([]byte, size/imageCount)
	copy(raw, "\x89PNG\r\n\x1a\n")
	part := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64.StdEncoding.EncodeToString(raw) + `"}},`
	return strings.Repeat(part, imageCount)
}

// fill makes one request of the form, in the buffer of an earlier one if there
// is one, and gives what to send.
func (f form) fill(buf []byte, secret string, index int) []byte {
	if buf == nil {
		buf = append(buf, f.raw...)
	}
	copy(buf[f.keyAt:], secret)
	for i := indexWide - 1; i >= 0; i-- {
		buf[f.indexAt+i] = byte('0' + index%10)
		index /= 10
	}
	return buf
}

// answerBook knows what each prompt was answered the first time, on whichever
// way that was: the engine says the same again.
type answerBook struct {
	mu    sync.Mutex
	texts map[int]uint64
}

func (b *answerBook) same(index int, hash uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, ok := b.texts[index]
	if !ok {
		b.texts[index] = hash
		return true
	}
	return was == hash
}

// tally is what a load saw.
type tally struct {
	took, first, gaps []time.Duration
	answered          int
	tokens            int
	// wrong counts answers that lack tokens, have too many, or have others than
	// before; endless those without their end; failed those that did not come.
	wrong, endless, failed int
	failures               []string
	span                   time.Duration
}

const failuresShown = 3

func (t *tally) add(o *tally) {
	t.took, t.first, t.gaps = append(t.took, o.took...), append(t.first, o.first...), append(t.gaps, o.gaps...)
	t.answered, t.tokens = t.answered+o.answered, t.tokens+o.tokens
	t.wrong, t.endless, t.failed = t.wrong+o.wrong, t.endless+o.endless, t.failed+o.failed
	t.failures = append(t.failures, o.failures...)
	t.failures = t.failures[:min(len(t.failures), failuresShown)]
}

// load sends one kind of work to one target.
type load struct {
	work   work
	target target
	book   *answerBook
	form   form
	next   atomic.Int64
}

func (l *lab) load(w work, t target) *load {
	return &load{work: w, target: t, book: l.book(w.name), form: w.form(t)}
}

// one makes one exchange and judges the answer.
func (l *load) one(c *client, to *tally) {
	index := int(l.next.Add(1) - 1)
	if c.of != l {
		c.of, c.buf = l, nil
	}
	c.buf = l.form.fill(c.buf, l.target.secrets[index%len(l.target.secrets)], index)
	c.dialect = l.work.dialect
	a, err := c.exchange(c.buf, l.work.itl > 0)
	if err != nil {
		to.failed++
		if len(to.failures) < failuresShown {
			to.failures = append(to.failures, err.Error())
		}
		return
	}
	to.answered++
	to.tokens += a.tokens
	to.took = append(to.took, a.end.Sub(a.sent))
	want := 1
	if l.work.stream {
		want = l.work.tokens
		to.first, to.gaps = append(to.first, a.first), append(to.gaps, a.gaps...)
	}
	if a.texts != want || a.tokens != l.work.tokens || !l.book.same(index, a.hash) {
		to.wrong++
	}
	if !a.done {
		to.endless++
	}
}

// closed keeps n clients busy. Each makes a given number of exchanges, or as
// many as fit into a time when that is set.
type closed struct {
	clients, each int
	during        time.Duration
}

func (l *load) closed(ctx context.Context, cs []*client, how closed) tally {
	tallies := make([]tally, how.clients)
	start := make(chan struct{})
	var begun time.Time
	var group sync.WaitGroup
	for i := range how.clients {
		group.Go(func() {
			<-start
			for n := 0; ctx.Err() == nil; n++ {
				if how.during > 0 && time.Since(begun) >= how.during || how.during == 0 && n >= how.each {
					return
				}
				l.one(cs[i], &tallies[i])
			}
		})
	}
	begun = time.Now()
	close(start)
	group.Wait()
	sum := tally{span: time.Since(begun)}
	for i := range tallies {
		sum.add(&tallies[i])
	}
	return sum
}

// open sends at a fixed rate, whether or not earlier answers are there.
func (l *load) open(ctx context.Context, pool *pool, rate float64, during time.Duration) tally {
	var sum tally
	var mu sync.Mutex
	var group sync.WaitGroup
	begun := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range int(rate * during.Seconds()) {
		timer.Reset(time.Until(begun.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
		select {
		case <-timer.C:
		case <-ctx.Done():
			group.Wait()
			return sum
		}
		group.Go(func() {
			var own tally
			c := pool.take()
			l.one(c, &own)
			pool.give(c)
			mu.Lock()
			defer mu.Unlock()
			sum.add(&own)
		})
	}
	group.Wait()
	sum.span = time.Since(begun)
	return sum
}

// pool keeps connections that nobody uses now; the newest is taken first.
type pool struct {
	addr string
	mu   sync.Mutex
	idle []*client
}

func (p *pool) take() *client {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return newClient(p.addr)
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c
}

func (p *pool) give(c *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		c.close()
	}
}

func newClients(addr string, n int) []*client {
	cs := make([]*client, n)
	for i := range cs {
		cs[i] = newClient(addr)
	}
	return cs
}

func closeAll(cs []*client) {
	for _, c := range cs {
		c.close()
	}
}
