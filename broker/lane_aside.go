package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/carillonmq/carillon/storage"
)

const (
	// asideAgain is the time between two tries of what is aside, while none succeeds.
	asideAgain = 5 * time.Second
	// One try is of so many bytes of stored bodies at most, and of mostChunk dead
	// letters, one of them at least; and of the smallest that was too large.
	asideBytes = 1 << 20
)

// An aside is the dead letters that their topic refuses, each when it was sent alone,
// for what is in them. They wait here, without payload, until the topic is repaired,
// and hold no other up, as long as there are some thousands of them at most: like all
// that is handed over they count for mostHanded.
//
//	ready --refused--> letters --every 5 s, a few in turn--> waiting
type aside struct {
	letters []asideLetter       // that are not tried at present, the next one first
	refused map[uint64]struct{} // seqs of these, and of those that are tried at present
	again   time.Time           // when the next ones are tried
}

type asideLetter struct {
	ref      storage.Ref
	size     int // bytes of the stored body
	tooLarge bool
}

func (a *aside) isEmpty() bool { return len(a.letters) == 0 }

// mayTry reports whether some wait and the last try is over. Where Kafka takes long to
// refuse, tries would queue up before what was never refused.
func (a *aside) mayTry() bool { return len(a.letters) > 0 && len(a.letters) == len(a.refused) }

// written notes that the topic took a record. If it was one that it had refused, the
// topic has changed, and the next ones are tried at once.
func (a *aside) written(seq uint64) {
	if _, ok := a.refused[seq]; ok {
		delete(a.refused, seq)
		a.again = time.Time{}
	}
}

// setAside takes a dead letter, the first that is ready, out of the way of the others.
func (l *lane) setAside(ctx context.Context, o *outgoing, cause error) {
	l.ready[0] = nil
	l.ready = l.ready[1:]
	l.unload(o)
	if l.aside.isEmpty() {
		l.aside.again = time.Now().Add(asideAgain)
	}
	l.aside.letters = append(l.aside.letters, asideLetter{o.ref, o.size, errors.Is(cause, ErrRecordTooLarge)})
	if _, ok := l.aside.refused[o.ref.Seq]; !ok {
		if l.aside.refused == nil {
			l.aside.refused = make(map[uint64]struct{})
		}
		l.aside.refused[o.ref.Seq] = struct{}{}
		l.p.cfg.Count.DeadLetterStuck()
		level := slog.LevelDebug
		if time.Since(l.warned) >= time.Second {
			level = slog.LevelError
			l.warned = time.Now()
		}
		l.log.Log(ctx, level, "dead letter is refused and waits: repair the dead-letter topic", "origin", o.message.Origin.String(), "bytes", o.size, "error", cause)
	}
	l.reportRefused(cause)
}

// tryAside has a few of the dead letters sent again when it is time: the next in turn,
// and the one that fits first when the topic is made to take larger ones.
func (l *lane) tryAside() {
	a := &l.aside
	if !a.mayTry() || time.Now().Before(a.again) {
		return
	}
	if i := a.smallest(); i >= 0 {
		l.waiting = append(l.waiting, a.letters[i].ref)
		a.letters = slices.Delete(a.letters, i, i+1)
	}
	n, bytes := 0, 0
	for n < min(len(a.letters), mostChunk) && (n == 0 || bytes+a.letters[n].size <= asideBytes) {
		bytes += a.letters[n].size
		l.waiting = append(l.waiting, a.letters[n].ref)
		n++
	}
	a.letters = slices.Delete(a.letters, 0, n)
	a.again = time.Now().Add(asideAgain)
}

// smallest returns the index of the smallest letter that was too large, or -1.
func (a *aside) smallest() int {
	least := -1
	for i, letter := range a.letters {
		if letter.tooLarge && (least < 0 || letter.size < a.letters[least].size) {
			least = i
		}
	}
	return least
}
