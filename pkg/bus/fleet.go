package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Beat writes a worker's heartbeat. It lives for HeartbeatLife.
func (b *Bus) Beat(ctx context.Context, h Heartbeat) error {
	key, err := fleetKey(h.Worker, h.Model)
	if err != nil {
		return err
	}
	return b.put(ctx, fleetBucket, key, h)
}

// Leave takes a worker's model out of the fleet at once.
func (b *Bus) Leave(ctx context.Context, worker, model string) error {
	key, err := fleetKey(worker, model)
	if err != nil {
		return err
	}
	return b.remove(ctx, fleetBucket, key)
}

func fleetKey(worker, model string) (string, error) { return subject("w", worker, model) }

// WatchFleet hands every heartbeat to beat, those of now first, and calls left
// when a worker takes a model away. Ready is called after the first ones. A
// worker that dies says nothing: who watches must forget it after
// HeartbeatLife.
func (b *Bus) WatchFleet(ctx context.Context, ready func(), beat func(Heartbeat), left func(worker, model string)) error {
	return b.watch(ctx, fleetBucket, ready, func(e jetstream.KeyValueEntry) error {
		if e.Operation() != jetstream.KeyValuePut {
			worker, model, err := fleetNames(e.Key())
			if err == nil {
				left(worker, model)
			}
			return err
		}
		var h Heartbeat
		if err := Unmarshal(e.Value(), &h); err != nil {
			return err
		}
		beat(h)
		return nil
	})
}

// PutPrincipal publishes what a key's hash stands for.
func (b *Bus) PutPrincipal(ctx context.Context, hashHex string, p Principal) error {
	return b.put(ctx, keysBucket, hashHex, p)
}

// DeletePrincipal takes a key away from every edge.
func (b *Bus) DeletePrincipal(ctx context.Context, hashHex string) error {
	return b.remove(ctx, keysBucket, hashHex)
}

// Principals lists the hashes that are published now.
func (b *Bus) Principals(ctx context.Context) ([]string, error) {
	kv, err := b.bucket(ctx, keysBucket)
	if err != nil {
		return nil, err
	}
	list, err := kv.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("principals: %w", translate(err))
	}
	defer func() { _ = list.Stop() }()
	var hashes []string
	for k := range list.Keys() {
		hashes = append(hashes, k)
	}
	return hashes, nil
}

// WatchPrincipals hands every published key to change, and nil for one that was
// taken away. Ready is called after those of now.
func (b *Bus) WatchPrincipals(ctx context.Context, ready func(), change func(hashHex string, p *Principal)) error {
	return b.watch(ctx, keysBucket, ready, func(e jetstream.KeyValueEntry) error {
		if e.Operation() != jetstream.KeyValuePut {
			change(e.Key(), nil)
			return nil
		}
		var p Principal
		if err := Unmarshal(e.Value(), &p); err != nil {
			return err
		}
		change(e.Key(), &p)
		return nil
	})
}

// PutFunds publishes whether an account is empty.
func (b *Bus) PutFunds(ctx context.Context, f Funds) error {
	key, err := Token(f.Account)
	if err != nil {
		return err
	}
	return b.put(ctx, fundsBucket, key, f)
}

// WatchFunds hands every published change of an account's funds to change.
func (b *Bus) WatchFunds(ctx context.Context, ready func(), change func(Funds)) error {
	return b.watch(ctx, fundsBucket, ready, func(e jetstream.KeyValueEntry) error {
		if e.Operation() != jetstream.KeyValuePut {
			return nil
		}
		var f Funds
		if err := Unmarshal(e.Value(), &f); err != nil {
			return err
		}
		change(f)
		return nil
	})
}

func (b *Bus) put(ctx context.Context, bucket, key string, v any) error {
	kv, err := b.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	raw, err := Marshal(v)
	if err != nil {
		return err
	}
	if _, err := kv.Put(ctx, key, raw); err != nil {
		return fmt.Errorf("put into %s: %w", bucket, translate(err))
	}
	return nil
}

func (b *Bus) remove(ctx context.Context, bucket, key string) error {
	kv, err := b.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	if err := kv.Delete(ctx, key); err != nil {
		return fmt.Errorf("delete from %s: %w", bucket, translate(err))
	}
	return nil
}

// watch follows a bucket until ctx ends. After a lost connection it is opened
// anew, and hands everything over again: the library's own watcher takes many
// seconds to notice that its server has forgotten it.
func (b *Bus) watch(ctx context.Context, bucket string, ready func(), each func(jetstream.KeyValueEntry) error) error {
	for {
		err := b.follow(ctx, bucket, ready, each)
		if ctx.Err() != nil {
			return nil
		}
		b.log.Warn("watch opened anew", "bucket", bucket, "error", err)
		if !rest(ctx, reconnectWait) {
			return nil
		}
	}
}

func (b *Bus) follow(ctx context.Context, bucket string, ready func(), each func(jetstream.KeyValueEntry) error) error {
	kv, err := b.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watch %s: %w", bucket, translate(err))
	}
	defer func() { _ = w.Stop() }()
	tick := time.NewTicker(reconnectWait)
	defer tick.Stop()
	for epoch := b.reconnects.Load(); ; {
		select {
		case <-tick.C:
			if b.reconnects.Load() != epoch {
				return fmt.Errorf("watch %s: the connection was made anew", bucket)
			}
		case e, ok := <-w.Updates():
			if !ok {
				return fmt.Errorf("watch %s: closed", bucket)
			}
			if e == nil {
				ready()
				continue
			}
			if err := each(e); err != nil {
				b.garbled("entry of "+bucket, err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}
