// Package retain keeps prompts and answers whose owners have agreed to it, and
// nobody else's: sealed for the operator's key (age, age-encryption.org/v1) and
// filed under the request's id in an object store. Who writes can not read: an
// edge has the operator's public key only. Who may be kept is decided by the edge;
// what is kept is written once, listed, shown and erased by operators, and
// expires. It is the only place where content reaches a disk.
package retain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file:// stores
	_ "gocloud.dev/blob/s3blob"   // s3:// stores
	"gocloud.dev/gcerrors"

	"github.com/engy-ai/engy/pkg/fault"
	"github.com/engy-ai/engy/pkg/llm"
)

// Bounds of the store. Sizes are bytes.
const (
	// RecordBytesMax bounds one record before it is sealed.
	RecordBytesMax = 320 << 20
	// ListMax bounds one page of a list, and what Expire erases at once.
	ListMax = 1000
	// suffix marks the objects that are ours.
	suffix = ".age"
)

// Record is one exchange that its owner allows to keep.
type Record struct {
	// Request is the request's id, and what the record is filed under.
	Request string    `json:"request"`
	Account string    `json:"account"`
	Key     string    `json:"key"`
	Model   string    `json:"model"`
	Route   string    `json:"route"`
	Time    time.Time `json:"time"`
	Outcome string    `json:"outcome"`
	Tokens  llm.Usage `json:"tokens"`
	// Prompt is the request as workers got it, Answer what came of it; nil when
	// nothing did.
	Prompt json.RawMessage `json:"prompt"`
	Answer *llm.Response   `json:"answer,omitzero"`
}

// String gives sizes only.
func (r Record) String() string {
	return fmt.Sprintf("record(%s, %s, %d prompt bytes)", r.Request, r.Model, len(r.Prompt))
}

// Entry is a record in a list: what is known without the operator's key.
type Entry struct {
	Request string
	Time    time.Time
	Bytes   int64
}

// Store is an object store. It is safe for concurrent use.
type Store struct {
	bucket *blob.Bucket
	seal   age.Recipient
}

// Open opens the store at a URL: file:///path, with the path made when it is
// missing, or s3://bucket with the parameters of gocloud.dev/blob/s3blob. Recipient
// is the operator's public key (age1…); it may be empty for who only reads.
func Open(ctx context.Context, at, recipient string) (*Store, error) {
	s := &Store{}
	if recipient != "" {
		r, err := age.ParseX25519Recipient(recipient)
		if err != nil {
			return nil, fault.At("recipient", "the retention key is no age public key")
		}
		s.seal = r
	}
	u, err := url.Parse(at)
	if err != nil || u.Scheme == "" {
		return nil, fault.At("url", "the retention store must be a URL such as file:///path or s3://bucket")
	}
	if u.Scheme == "file" {
		if at, err = directory(u); err != nil {
			return nil, err
		}
	}
	if s.bucket, err = blob.OpenBucket(ctx, at); err != nil {
		return nil, fmt.Errorf("retention store: %w", err)
	}
	return s, nil
}

// directory makes a directory that its owner alone may read, and gives the URL of
// a store in it that writes no second file beside each, and moves what is whole
// into place.
func directory(u *url.URL) (string, error) {
	path := filepath.FromSlash(u.Path)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("retention store: %w", err)
	}
	q := u.Query()
	q.Set("metadata", "skip")
	q.Set("no_tmp_dir", "true")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// Close ends the use of the store.
func (s *Store) Close() error { return s.bucket.Close() }

// Keep seals and files a record. The same id again replaces it.
func (s *Store) Keep(ctx context.Context, r Record) error {
	if s.seal == nil {
		return fault.New(fault.Invalid, "the store was opened without a key to seal with")
	}
	if !known(r.Request) {
		return fault.At("request", "a record needs its request's id")
	}
	raw, err := json.Marshal(r)
	if err != nil {
		// The text of a JSON error may quote what it met.
		return fault.New(fault.Internal, "record cannot be written")
	}
	if len(raw) > RecordBytesMax {
		return fault.New(fault.TooLarge, "record is too large")
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, s.seal)
	if err == nil {
		_, err = w.Write(raw)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("seal %s: %w", r.Request, err)
	}
	// A write that is cut short leaves nothing: the object appears when it is whole.
	if err := s.bucket.WriteAll(ctx, r.Request+suffix, sealed.Bytes(), &blob.WriterOptions{ContentType: "application/octet-stream"}); err != nil {
		return fmt.Errorf("keep %s: %w", r.Request, err)
	}
	return nil
}

// Show opens a record with the operator's identity (AGE-SECRET-KEY-1…).
func (s *Store) Show(ctx context.Context, request, identity string) (Record, error) {
	var r Record
	id, err := age.ParseX25519Identity(strings.TrimSpace(identity))
	if err != nil {
		return r, fault.At("identity", "the identity is no age secret key")
	}
	if !known(request) {
		return r, notFound(request)
	}
	sealed, err := s.bucket.NewReader(ctx, request+suffix, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return r, notFound(request)
	}
	if err != nil {
		return r, fmt.Errorf("show %s: %w", request, err)
	}
	defer func() { _ = sealed.Close() }()
	open, err := age.Decrypt(sealed, id)
	if err != nil {
		return r, fault.Wrap(fault.Forbidden, "this identity does not open the record", err)
	}
	raw, err := io.ReadAll(io.LimitReader(open, RecordBytesMax))
	if err != nil {
		return r, fmt.Errorf("show %s: %w", request, err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fault.New(fault.Internal, "record cannot be read")
	}
	return r, nil
}

// Erase removes a record; a coded NotFound when there is none.
func (s *Store) Erase(ctx context.Context, request string) error {
	if !known(request) {
		return notFound(request)
	}
	err := s.bucket.Delete(ctx, request+suffix)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return notFound(request)
	}
	if err != nil {
		return fmt.Errorf("erase %s: %w", request, err)
	}
	return nil
}

// List hands every record to each, oldest first, until each gives an error.
func (s *Store) List(ctx context.Context, each func(Entry) error) error {
	list := s.bucket.List(nil)
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list records: %w", err)
		}
		request, ours := strings.CutSuffix(o.Key, suffix)
		at, ok := made(request)
		if !ours || !ok {
			continue
		}
		if err := each(Entry{Request: request, Time: at, Bytes: o.Size}); err != nil {
			return err
		}
	}
}

// errEnough ends a list.
var errEnough = errors.New("enough")

// Expire erases records made before an instant, at most ListMax of them, and
// tells how many.
func (s *Store) Expire(ctx context.Context, before time.Time) (int, error) {
	n := 0
	err := s.List(ctx, func(e Entry) error {
		// Ids sort by time, so the first that is young enough ends it.
		if !e.Time.Before(before) || n == ListMax {
			return errEnough
		}
		err := s.Erase(ctx, e.Request)
		if err != nil && !fault.Is(err, fault.NotFound) { // another edge was faster
			return err
		}
		n++
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return n, err
}

func notFound(request string) error {
	if len(request) > 64 {
		request = request[:64]
	}
	return fault.New(fault.NotFound, "no record is kept of request "+strconv.QuoteToASCII(request))
}

// idDigits is how long a request's id is, timeDigits how much of it is the time
// of its making, in milliseconds.
const (
	idDigits   = 64
	timeDigits = 12
)

// known tells whether a text is a request's id, so that nothing else of a store
// can be reached with one.
func known(request string) bool {
	if len(request) != idDigits {
		return false
	}
	for _, c := range request {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// made reads when a request came out of its id.
func made(request string) (time.Time, bool) {
	if !known(request) {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(request[:timeDigits], 16, 64)
	return time.UnixMilli(ms).UTC(), err == nil
}

// NewIdentity makes an operator's key pair: the identity opens what the recipient
// seals.
func NewIdentity() (identity, recipient string, err error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", fmt.Errorf("identity: %w", err)
	}
	return id.String(), id.Recipient().String(), nil
}

// Recipient gives the public key of an identity.
func Recipient(identity string) (string, error) {
	id, err := age.ParseX25519Identity(strings.TrimSpace(identity))
	if err != nil {
		return "", fault.At("identity", "the identity is no age secret key")
	}
	return id.Recipient().String(), nil
}
