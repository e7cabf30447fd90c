package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// How the ids of messages are found that were accepted before ids were open.
const (
	// raisedEvery is how often the opening looks whether the feature level has been raised.
	raisedEvery = time.Second
	// intakeWaits is how long intake waits for the opening, from its beginning on: most are over by
	// then, and nothing is refused for the sake of those.
	intakeWaits = 500 * time.Millisecond
	// openingStep bounds the messages that are read at a time, openingBytes their bytes, unless one
	// has more. After each step the opening rests for as long as it took, so that deliveries have the
	// disk for half of the time at least; while intake waits for it, it does not rest.
	openingStep  = 512
	openingBytes = 1 << 20
	// mostNamed is how many messages a command names at most: with the longest ids far below
	// raftfsm.MaxCommandBytes.
	mostNamed = 1000
	// mostListed is how many messages are listed one by one that share their id with a newer one.
	mostListed = 1000
)

// An opening indexes what has an id already when the cluster comes to LevelThree. Until that is
// complete nothing is answered from the index, so what is accepted meanwhile is stored as before,
// and has to be indexed as well:
//
//	            raise   begin                              end          open
//	in storage -----------|--- walk: read and name all ------|            |
//	accepted -------------|-- waits --|-- noted if settled --|-- waits ---|--> operations
//
// Whatever intake packed before the raise is in storage when the opening begins: it is in the log
// before the first OpenIDs, for which intake was held up. At the end intake waits, for a moment,
// until the last that it noted is named; so nothing can come in between unnoticed. A term that ends
// before leaves the next one to begin anew, for which to name a message twice does no harm.
type opening struct {
	cfg   Options
	log   *slog.Logger
	wake  chan struct{} // intake waits for the opening to begin
	begun chan struct{} // closed when it has
	first uint64        // NextSeq then: what is accepted from here on is noted

	// intake has one place, which is taken while a poll's records are read and proposed, and while
	// none must pass the opening. isHeld says that the opening has taken it.
	intake chan struct{}
	isHeld bool

	mu    sync.Mutex
	noted []storage.Named // accepted, and not named yet

	named, shared, unreadable int
}

func newOpening(cfg Options, log *slog.Logger) *opening {
	return &opening{cfg: cfg, log: log, wake: make(chan struct{}, 1), begun: make(chan struct{}), intake: make(chan struct{}, 1)}
}

// enter waits until intake may read and propose records; leave follows. From the raise on it waits
// for the opening to begin: what comes next is then read by the level that is in force.
func (o *opening) enter(ctx context.Context) error {
	if o.isDue() {
		select {
		case o.wake <- struct{}{}:
		default:
		}
		select {
		case <-o.begun:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return o.take(ctx)
}

func (o *opening) leave() { <-o.intake }

func (o *opening) take(ctx context.Context) error {
	select {
	case o.intake <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isDue reports whether the level wants the ids open that are not.
func (o *opening) isDue() bool {
	return o.cfg.Store.Level() >= storage.LevelThree && !o.cfg.Store.IDsOpen()
}

// run opens the ids once the feature level is high enough. It returns nil when they are open, or
// ctx's error.
func (o *opening) run(ctx context.Context, proposed chan<- proposedIngest) error {
	if o.cfg.Store.IDsOpen() {
		return nil
	}
	ticker := time.NewTicker(raisedEvery)
	defer ticker.Stop()
	for !o.isDue() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		case <-o.wake:
		}
	}
	if err := o.open(ctx, proposed); err != nil {
		return fmt.Errorf("open ids: %w", err)
	}
	return nil
}

func (o *opening) open(ctx context.Context, proposed chan<- proposedIngest) error {
	started := time.Now()
	if err := o.hold(ctx); err != nil {
		return err
	}
	defer o.release()
	close(o.begun)
	if err := o.propose(ctx, nil, 0); err != nil || o.cfg.Store.IDsOpen() { // nothing was ever accepted
		return err
	}
	o.first = o.cfg.Store.NextSeq()
	o.log.Info("reading the ids of messages that wait, before any can be cancelled or replaced", "pending", o.cfg.Store.Pending())
	if err := o.walk(ctx, started.Add(intakeWaits)); err != nil {
		return err
	}
	if err := o.hold(ctx); err != nil {
		return err
	}
	if err := o.finish(ctx, proposed); err != nil {
		return err
	}
	o.log.Info("ids are open: messages can be cancelled and replaced by them", "named", o.named, "took", time.Since(started),
		"sharing_an_id_with_a_newer", o.shared, "unreadable", o.unreadable)
	return nil
}

// hold has intake wait until release.
func (o *opening) hold(ctx context.Context) error {
	if o.isHeld {
		return nil
	}
	if err := o.take(ctx); err != nil {
		return err
	}
	o.isHeld = true
	return nil
}

func (o *opening) release() {
	if o.isHeld {
		o.isHeld = false
		o.leave()
	}
}

// walk names what was in storage at the beginning. Intake need not wait for it longer than until
// then.
func (o *opening) walk(ctx context.Context, until time.Time) error {
	var items []storage.Item
	for from, done := (storage.Ref{}), false; !done; {
		step := time.Now()
		var err error
		if items, from, done, err = o.cfg.Store.Scan(from, storage.Ref{}, openingStep, nil, items[:0]); err != nil {
			return err
		}
		if err := o.nameAll(ctx, items); err != nil {
			return err
		}
		if err := o.name(ctx, o.takeNoted()); err != nil {
			return err
		}
		if o.isHeld && time.Now().Before(until) {
			continue
		}
		o.release()
		if err := rest(ctx, time.Since(step)); err != nil {
			return err
		}
	}
	return nil
}

// nameAll reads messages, a bounded number of bytes at a time, and names those with an id.
func (o *opening) nameAll(ctx context.Context, items []storage.Item) error {
	var refs []storage.Ref
	size := 0
	for i, item := range items {
		if item.Seq < o.first {
			refs = append(refs, item.Ref)
			size += item.Size
		}
		if size < openingBytes && i+1 < len(items) {
			continue
		}
		entries, err := o.cfg.Store.Read(refs, nil)
		if err != nil {
			return err
		}
		if err := o.name(ctx, o.namesOf(entries)); err != nil {
			return err
		}
		refs, size = refs[:0], 0
	}
	return nil
}

func (o *opening) namesOf(entries []storage.Entry) (names []storage.Named) {
	for i := range entries {
		e := &entries[i]
		m, err := message.FromEntry(e)
		switch {
		case err != nil:
			o.unreadable++
			o.log.Error("the id of a message cannot be read: it can be neither cancelled nor replaced", "seq", e.Seq, "due", e.Due, "target", e.Target, "error", err)
		case m.ID != "":
			names = append(names, storage.Named{Ref: e.Ref(), Target: e.Target, Topic: m.Origin.Topic, ID: m.ID})
		}
	}
	return names
}

// name has every node index the messages.
func (o *opening) name(ctx context.Context, names []storage.Named) error {
	for len(names) > 0 {
		batch := names[:min(len(names), mostNamed)]
		names = names[len(batch):]
		if err := o.list(batch); err != nil {
			return err
		}
		if err := o.propose(ctx, batch, 0); err != nil {
			return err
		}
		o.named += len(batch)
	}
	return nil
}

// list tells of messages that share their id: it stands for the newest of them.
func (o *opening) list(batch []storage.Named) error {
	type id struct{ topic, id string }
	newest := make(map[id]uint64, len(batch))
	for i := range batch {
		n := &batch[i]
		other, ok := newest[id{n.Topic, n.ID}]
		if !ok {
			found, _, err := o.cfg.Store.Lookup(n.Topic, n.ID)
			if err != nil {
				return err
			}
			other = found.Seq
		}
		newest[id{n.Topic, n.ID}] = max(other, n.Seq)
		if other == 0 || other == n.Seq {
			continue
		}
		if o.shared++; o.shared <= mostListed {
			o.log.Warn("a message shares its id with a newer one, for which it stands: it can be neither cancelled nor replaced, and is delivered",
				"topic", n.Topic, "id", n.ID, "seq", min(other, n.Seq), "newer", max(other, n.Seq))
		}
	}
	return nil
}

// note keeps the names of messages that a command has accepted, in order from the seq first on.
func (o *opening) note(names []storage.Named, first uint64) {
	if len(names) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range names {
		n.Seq += first // it was the place in the part
		o.noted = append(o.noted, n)
	}
}

func (o *opening) takeNoted() []storage.Named {
	o.mu.Lock()
	defer o.mu.Unlock()
	noted := o.noted
	o.noted = nil
	return noted
}

// finish names the last of what was noted, while intake waits, and opens the ids. Dead letters, which
// delivery accepts, may come between: they have no id, but a seq.
func (o *opening) finish(ctx context.Context, proposed chan<- proposedIngest) error {
	settled := make(chan struct{})
	select {
	case proposed <- proposedIngest{settled: settled}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-settled:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := o.name(ctx, o.takeNoted()); err != nil {
		return err
	}
	for !o.cfg.Store.IDsOpen() {
		if err := o.propose(ctx, nil, o.cfg.Store.NextSeq()-1); err != nil {
			return err
		}
	}
	return nil
}

func (o *opening) propose(ctx context.Context, names []storage.Named, upTo uint64) error {
	command := raftfsm.OpenIDs{Time: o.cfg.Now().UnixMilli(), Named: names, UpTo: upTo}
	if _, err := o.cfg.Log.Propose(ctx, command).Wait(ctx); err != nil {
		return fmt.Errorf("commit ids: %w", err)
	}
	return nil
}

// rest returns after d, or with ctx's error.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
