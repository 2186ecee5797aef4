package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/engy-ai/engy/pkg/fault"
)

const (
	usageStream   = "USAGE"
	reportsStream = "REPORTS"
	fleetBucket   = "fleet"
	keysBucket    = "keys"
	fundsBucket   = "funds"
)

// Regions are the places that a worker or an edge may be in.
func Regions() []string { return []string{"eu", "us", "cn", "apac", "other"} }

// KnownRegion tells whether a region exists. Regions are compared exactly.
func KnownRegion(r string) bool {
	for _, known := range Regions() {
		if r == known {
			return true
		}
	}
	return false
}

func jobsStream(region string) string { return "JOBS_" + region }

// streams is the table of all streams. No subject here may match the subjects
// of dispatches, claims, bodies or frames: content must stay out of storage.
func streams(cfg Config) []jetstream.StreamConfig {
	table := []jetstream.StreamConfig{
		{
			Name: usageStream, Subjects: []string{usagePrefix + ".>"},
			Description: "what each request used and cost",
			Storage:     jetstream.FileStorage, MaxAge: usageAge,
			Duplicates: dedupeWindow, Replicas: cfg.Replicas,
			Compression: jetstream.S2Compression,
		},
		{
			Name: reportsStream, Subjects: []string{reportsPrefix + ".>"},
			Description: "what workers say of their attempts",
			Storage:     jetstream.FileStorage, MaxAge: reportAge,
			Duplicates: dedupeWindow, Replicas: cfg.Replicas,
		},
	}
	for _, region := range Regions() {
		table = append(table, jetstream.StreamConfig{
			Name: jobsStream(region), Subjects: []string{jobsPrefix + "." + region + ".>"},
			Description: "tickets until their job is done",
			Storage:     jetstream.MemoryStorage, Retention: jetstream.WorkQueuePolicy,
			Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
			MaxMsgsPerSubject: cfg.QueueMax, MaxMsgSize: ticketBytesMax,
			MaxAge: jobAge, Duplicates: dedupeWindow, Replicas: cfg.Replicas,
		})
	}
	return table
}

// buckets is the table of all key-value buckets.
func buckets(cfg Config) []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{
		{
			Bucket: fleetBucket, Description: "heartbeats, one key a worker and model",
			TTL: HeartbeatLife, Storage: jetstream.MemoryStorage, Replicas: cfg.Replicas,
		},
		{
			Bucket: keysBucket, Description: "key hash to principal, a projection of billing's rows",
			Storage: jetstream.FileStorage, Replicas: cfg.Replicas,
		},
		{
			Bucket: fundsBucket, Description: "accounts that are empty",
			Storage: jetstream.FileStorage, Replicas: cfg.Replicas,
		},
	}
}

func (b *Bus) declare(ctx context.Context) error {
	for _, cfg := range streams(b.cfg) {
		if err := b.declareStream(ctx, cfg); err != nil {
			return fmt.Errorf("stream %s: %w", cfg.Name, translate(err))
		}
	}
	for _, cfg := range buckets(b.cfg) {
		if err := b.declareBucket(ctx, cfg); err != nil {
			return fmt.Errorf("bucket %s: %w", cfg.Bucket, translate(err))
		}
	}
	return nil
}

// redeclare creates again what is missing, with a bound on its tries.
func (b *Bus) redeclare() {
	for range declareTries {
		ctx, cancel := context.WithTimeout(b.life, publishTimeout)
		err := b.declare(ctx)
		cancel()
		if err == nil {
			return
		}
		b.log.Warn("streams not declared, trying again", "error", err)
		t := time.NewTimer(factPause)
		select {
		case <-t.C:
		case <-b.closing:
			t.Stop()
			return
		}
	}
}

// declareStream creates what is missing and leaves what is there, so that an
// operator's change of a limit survives a restart of a service.
func (b *Bus) declareStream(ctx context.Context, cfg jetstream.StreamConfig) error {
	_, err := b.js.Stream(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = b.js.CreateStream(ctx, cfg)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		// Another service created it in between.
		return nil
	}
	return err
}

func (b *Bus) declareBucket(ctx context.Context, cfg jetstream.KeyValueConfig) error {
	_, err := b.js.KeyValue(ctx, cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = b.js.CreateKeyValue(ctx, cfg)
	}
	if errors.Is(err, jetstream.ErrBucketExists) {
		return nil
	}
	return err
}

func (b *Bus) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	kv, err := b.js.KeyValue(ctx, name)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, "bucket "+name, err)
	}
	return kv, nil
}

// StoredSubjects lists the subjects of everything that is stored. No dispatch,
// no claim, no body and no frame may match one of them.
func StoredSubjects() []string {
	var all []string
	for _, s := range streams(Config{}) {
		all = append(all, s.Subjects...)
	}
	for _, k := range buckets(Config{}) {
		all = append(all, "$KV."+k.Bucket+".>")
	}
	return all
}
