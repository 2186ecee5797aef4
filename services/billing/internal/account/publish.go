package account

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/engy-ai/engy/pkg/bus"
	"github.com/engy-ai/engy/pkg/pg"
	"github.com/engy-ai/engy/services/billing/internal/account/dbsqlc"
)

const (
	channelKeys  = "engy_keys"
	channelFunds = "engy_funds"
)

// Board is where edges read of keys and funds.
type Board interface {
	PutPrincipal(ctx context.Context, hashHex string, p bus.Principal) error
	DeletePrincipal(ctx context.Context, hashHex string) error
	Principals(ctx context.Context) ([]string, error)
	PutFunds(ctx context.Context, f bus.Funds) error
}

// Publish keeps the board equal to the database until ctx ends. It listens for
// changes first and then copies everything, so that nothing falls between; what
// is new does not wait for the end of the copy. A lost connection starts over. Several publishers do no harm: each one reads
// the row anew for every change it hears of, after its own writes.
func (s *Store) Publish(ctx context.Context, board Board, log *slog.Logger) error {
	for ctx.Err() == nil {
		err := s.publish(ctx, board)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, errSyncAgain) {
			log.Warn("key projection starts over", "error", err)
		}
		t := time.NewTimer(againAfter)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	return nil
}

// errSyncAgain ends a round in good order: now and then everything is copied
// again, in case the board lost something.
var errSyncAgain = errors.New("time to copy everything again") // read-only

func (s *Store) publish(ctx context.Context, board Board) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return pg.Translate(err)
	}
	// Notifications may be left on it: it goes, not back to the pool.
	listening := conn.Hijack()
	defer listening.Close(context.WithoutCancel(ctx))
	q := dbsqlc.New(listening)
	if err := errors.Join(q.ListenForKeys(ctx), q.ListenForFunds(ctx)); err != nil {
		return pg.Translate(err)
	}
	news := newNews()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return hear(ctx, listening, news) })
	g.Go(func() error {
		c := copying{s, board, news}
		if err := c.all(ctx); err != nil {
			return err
		}
		return c.follow(ctx)
	})
	return g.Wait()
}

// hear collects what changed; the same thing twice is one piece of news, so
// the collection is bounded by the number of keys and accounts.
func hear(ctx context.Context, conn *pgx.Conn, news *news) error {
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return pg.Translate(err)
		}
		news.add(n.Channel, n.Payload)
	}
}

// copying is one round of making the board equal. One goroutine does all of it:
// what it reads it writes before it reads the same again, so that the board
// never goes back to an older state.
type copying struct {
	*Store
	board Board
	news  *news
}

func (c copying) follow(ctx context.Context) error {
	again := time.NewTimer(syncAllEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
			return errSyncAgain
		case <-c.news.ring:
		}
		if err := c.publishNews(ctx); err != nil {
			return err
		}
	}
}

// publishNews publishes what changed since it was last called: funds first, since
// who is handed a new key has mostly been credited before.
func (c copying) publishNews(ctx context.Context) error {
	keys, funds := c.news.take()
	for account := range funds {
		if err := c.publishFunds(ctx, c.board, account); err != nil {
			return err
		}
	}
	for hash := range keys {
		if err := c.publishKey(ctx, c.board, hash); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) publishKey(ctx context.Context, board Board, hashHex string) error {
	ctx, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	hash, err := hex.DecodeString(hashHex)
	if err != nil {
		return fmt.Errorf("key hash on the change channel: %w", err)
	}
	r, err := dbsqlc.New(s.pool).GetPrincipal(ctx, hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return board.DeletePrincipal(ctx, hashHex)
	}
	if err != nil {
		return pg.Translate(err)
	}
	return board.PutPrincipal(ctx, hashHex, bus.Principal{Account: r.AccountID, Key: r.ID, Models: r.Models, Retain: r.Retain})
}

func (s *Store) publishFunds(ctx context.Context, board Board, account string) error {
	ctx, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	empty, err := dbsqlc.New(s.pool).GetFunds(ctx, account)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return pg.Translate(err)
	}
	return board.PutFunds(ctx, bus.Funds{Account: account, Empty: empty})
}

// all puts every live key on the board and takes off what was there before and
// is not live. What is put on while it runs is not touched.
func (c copying) all(ctx context.Context) error {
	there, err := c.board.Principals(ctx)
	if err != nil {
		return err
	}
	live := make(map[string]bool)
	if err := c.keys(ctx, live); err != nil {
		return err
	}
	for _, hash := range there {
		if !live[hash] {
			// Asked for once more: it may have been made a moment ago.
			if err := c.publishKey(ctx, c.board, hash); err != nil {
				return err
			}
		}
	}
	return c.funds(ctx)
}

func (c copying) keys(ctx context.Context, live map[string]bool) error {
	after := []byte{}
	for {
		rows, err := dbsqlc.New(c.pool).ListPrincipals(ctx, after, copyRows)
		if err != nil {
			return pg.Translate(err)
		}
		for _, r := range rows {
			after = r.Hash
			hash := hex.EncodeToString(r.Hash)
			live[hash] = true
			p := bus.Principal{Account: r.AccountID, Key: r.ID, Models: r.Models, Retain: r.Retain}
			if err := c.board.PutPrincipal(ctx, hash, p); err != nil {
				return err
			}
		}
		if len(rows) < copyRows {
			return nil
		}
		if err := c.publishNews(ctx); err != nil {
			return err
		}
	}
}

func (c copying) funds(ctx context.Context) error {
	after := ""
	for {
		rows, err := dbsqlc.New(c.pool).ListFunds(ctx, after, copyRows)
		if err != nil {
			return pg.Translate(err)
		}
		for _, r := range rows {
			after = r.AccountID
			if err := c.board.PutFunds(ctx, bus.Funds{Account: r.AccountID, Empty: r.Empty}); err != nil {
				return err
			}
		}
		if err := c.publishNews(ctx); err != nil || len(rows) < copyRows {
			return err
		}
	}
}

// news is what changed since it was last taken.
type news struct {
	mu    sync.Mutex
	keys  map[string]bool
	funds map[string]bool
	ring  chan struct{} // one place: rung means that there is something
}

func newNews() *news {
	return &news{keys: map[string]bool{}, funds: map[string]bool{}, ring: make(chan struct{}, 1)}
}

func (n *news) add(channel, payload string) {
	n.mu.Lock()
	switch channel {
	case channelKeys:
		n.keys[payload] = true
	case channelFunds:
		n.funds[payload] = true
	}
	n.mu.Unlock()
	select {
	case n.ring <- struct{}{}:
	default:
	}
}

func (n *news) take() (keys, funds map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	keys, funds = n.keys, n.funds
	n.keys, n.funds = map[string]bool{}, map[string]bool{}
	return keys, funds
}
