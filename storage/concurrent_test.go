package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// One writer, and everything that may run beside it, until the writer is done.
// Readers must always see each message that lives through the whole run once.
func TestStore_readersSeeEverythingWhileItMovesToDisk(t *testing.T) {
	const rounds, perRound = 60, 200
	s := openStore(t, t.TempDir())
	other := openStore(t, t.TempDir())
	m := newModel()
	keep := operation{Level: LevelTwo, Accept: entries(500, 0, 13, 300)} // these live through
	m.apply(1, keep)
	applyTo(s, 1, keep)
	kept := m.sorted()

	ctx, stop := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	beside := func(work func() error) {
		readers.Go(func() {
			for ctx.Err() == nil {
				if err := work(); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	beside(func() error { return seesAll(s, kept) })
	beside(func() error { return readsAll(s, kept) })
	beside(func() error {
		_, err := s.Merge(ctx)
		return err
	})
	beside(func() error { return transfer(s, other) })
	beside(func() error { return s.Check() })
	beside(func() error {
		s.State()
		s.Stats()
		s.Alive(3)
		return nil
	})

	flushed := make(chan error, 1)
	flushed <- nil
	random := rand.New(rand.NewPCG(3, 4))
	for index := uint64(2); index < rounds; index++ {
		op := operation{Accept: entries(perRound, int64(index), 7, 300)}
		for range 20 {
			first := 501 + random.Uint64N(m.state.NextSeq)
			op.Kill = append(op.Kill, SeqRun{first, first + 10})
		}
		m.apply(index, op)
		applyTo(s, index, op)
		if index%3 == 0 {
			if err := <-flushed; err != nil {
				t.Fatal(err)
			}
			f := s.Freeze()
			go func() {
				if index%9 == 0 {
					f.Release()
					flushed <- nil
					return
				}
				flushed <- f.Flush(SnapshotMeta{Index: index, Term: 1})
			}()
		}
	}
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	stop()
	readers.Wait()
	requireEqual(t, s, m)
}

var (
	errMissed = errors.New("a reader missed a message that is alive")
	errTwice  = errors.New("a reader saw a message twice, or out of order, or missed the one before")
)

func seesAll(s *Store, kept []Entry) error {
	var from Ref
	var buf []Item
	next := 0
	for done := false; !done; {
		var err error
		if buf, from, done, err = s.Scan(from, Ref{}, 100, nil, buf[:0]); err != nil {
			return err
		}
		for _, item := range buf {
			if item.Seq > uint64(len(kept)) {
				continue
			}
			if next == len(kept) || item.Ref != kept[next].Ref() {
				return fmt.Errorf("%w: %v at place %d", errTwice, item.Ref, next)
			}
			next++
		}
	}
	if next != len(kept) {
		return errMissed
	}
	return nil
}

func readsAll(s *Store, kept []Entry) error {
	var refs []Ref
	for _, e := range kept {
		refs = append(refs, e.Ref())
	}
	got, err := s.Read(refs, nil)
	if err != nil {
		return err
	}
	if len(got) != len(kept) {
		return errMissed
	}
	return nil
}
