package broker

import (
	"fmt"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/storage"
)

const (
	// A read takes about chunkBytes, to judge by the sizes of the last one.
	chunkBytes = 1 << 20
	leastChunk = 8
	mostChunk  = 64 // whatever the sizes turn out to be, in messages
	// Messages in memory, in bytes: of one lane, and of all together. Beyond these each
	// lane may still have its share of what all have together, so that no target starves
	// another: mostShare while lanes are few, leastShare however many there are.
	mostLoad    = 4 << 20
	mostAllLoad = 64 << 20
	mostShare   = 256 << 10
	leastShare  = 16 << 10
	// recordLoad is what a message in memory costs besides its stored body: itself, its
	// headers, the record that is made of it and what a Kafka client keeps with that.
	recordLoad = 1 << 10
)

// mayRead reports whether there is something to read and room for it.
func (l *lane) mayRead() bool {
	hasRoom := l.loaded < mostLoad && l.p.loaded.Load() < mostAllLoad
	return len(l.waiting) > 0 && (hasRoom || l.loaded < l.p.share())
}

// share returns how many bytes each lane may hold whatever the others do.
func (p *publisher) share() int {
	return min(max(mostAllLoad/int(max(p.lanes.Load(), 1)), leastShare), mostShare)
}

// read loads the payloads of the next messages. One that is missing is dead, and
// the scheduler knows that from the log. One that cannot be decoded stays where it is,
// and the others go on.
func (l *lane) read() error {
	refs := l.waiting[:ascending(l.waiting, l.chunk)]
	entries, err := l.p.cfg.Store.Read(refs, nil)
	if err != nil {
		return fmt.Errorf("read %d messages for topic %q: %w", len(refs), l.target, err)
	}
	l.waiting = l.waiting[len(refs):]
	size, loaded := 0, 0
	for i := range entries {
		entry := &entries[i]
		size += len(entry.Body)
		message, err := message.DecodeBody(entry.Body)
		if err != nil {
			l.p.leaveUnreadable(entry, err)
			continue
		}
		o := &outgoing{ref: entry.Ref(), message: message, size: len(entry.Body)}
		o.deadLetter = message.DeadLetter
		l.letters.takes = l.letters.takes || o.deadLetter
		l.ready = append(l.ready, o)
		loaded += o.load()
	}
	l.load(loaded)
	l.chunk = nextChunk(len(entries), size)
	return nil
}

// nextChunk returns how many messages to read after n of that size together.
func nextChunk(n, size int) int {
	fits := chunkBytes * n / max(size, 1)
	return min(max(fits, 1), max(2*n, leastChunk), mostChunk)
}

// ascending returns how many refs at the front, at most that many, are in order of
// delivery. Storage wants them sorted; what was accepted late comes out of order.
func ascending(refs []storage.Ref, most int) int {
	n := 1
	for n < min(len(refs), most) && refs[n-1].Compare(refs[n]) < 0 {
		n++
	}
	return n
}

func (l *lane) load(size int) {
	l.loaded += size
	l.p.loaded.Add(int64(size))
}

func (l *lane) unload(o *outgoing) { l.load(-o.load()) }

// load returns what the message costs in memory, in bytes.
func (o *outgoing) load() int { return o.size + recordLoad }
