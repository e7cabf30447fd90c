package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillonmq/carillon/client"
)

const (
	// MostListed is how many dead letters a page may have.
	MostListed = 1000
	// mostScanned is how many records a page may look at, of which few may be meant, mostRead how many
	// bytes of them it reads, and readFor for how long it begins to read more. It comes on by one at least.
	mostScanned = 10_000
	mostRead    = 32 << 20
	readFor     = 3 * time.Second
	// mostPartitions bounds those that are read side by side: the cursor names each.
	mostPartitions = 500
	// firstSpan is how many offsets of a partition are read at a time, fewer when they are large.
	firstSpan = 64
	// mostAtOnce bounds what one reading has in memory, in bytes.
	mostAtOnce = 8 << 20
)

// A ListRequest asks for a page.
type ListRequest struct {
	// Filter says which are meant, by their delay topic, target, code, and when they were written.
	Filter client.Filter
	Cursor string // "": the first page
	Limit  int    // dead letters, 1 to MostListed
}

// List returns a page of what lies in the dead-letter topics, the newest first, as the times of the
// records tell. It may be short, or empty, and have others after it. Records that are no dead letters
// are told as Foreign, unless the filter means some only. Its errors are a
// *client.Problem about the request, and ErrKafka.
func (d *Desk) List(ctx context.Context, r ListRequest) (client.DeadLetterPage, error) {
	if err := check(r); err != nil {
		return client.DeadLetterPage{}, err
	}
	question := digest(d.store.State().ClusterID, r.Filter)
	places, err := resume(r.Cursor, question)
	if err != nil {
		return client.DeadLetterPage{}, err
	}
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return client.DeadLetterPage{}, err
	}
	defer leave()
	partitions, err := d.kafka.Partitions(ctx, d.topics, r.Filter.From)
	if err != nil {
		return client.DeadLetterPage{}, inTime(ctx, "look for dead letters", err)
	}
	if len(partitions) > mostPartitions {
		return client.DeadLetterPage{}, &client.Problem{Code: client.CodeRefused, Detail: fmt.Sprintf("the dead-letter topics have %d partitions together, and at most %d can be listed: read them with a consumer", len(partitions), mostPartitions)}
	}
	w := walk{desk: d, filter: r.Filter, until: d.now().Add(readFor), page: client.DeadLetterPage{DeadLetters: []client.DeadLetter{}}}
	for i := range partitions {
		w.tails = append(w.tails, newTail(&partitions[i], places))
	}
	if err := w.run(ctx, r.Limit); err != nil {
		return client.DeadLetterPage{}, err
	}
	if slices.ContainsFunc(w.tails, func(t *tail) bool { return !t.done() }) {
		w.page.Next = cursor(w.tails, question)
	}
	return w.page, nil
}

// ofWaiting is why a condition means nothing here.
const ofWaiting = "is of messages that wait: dead letters have topic, target, code, from and to"

func check(r ListRequest) error {
	if r.Limit < 1 || r.Limit > MostListed {
		return client.BadField("limit", strconv.Itoa(r.Limit), fmt.Sprintf("is not from 1 to %d: ask for as many, and for the next page after it", MostListed))
	}
	if problem := CheckFilter(&r.Filter); problem != nil {
		return problem
	}
	return nil
}

// CheckFilter returns what the filter says that means nothing for dead letters, or nil.
func CheckFilter(f *client.Filter) *client.Problem {
	switch {
	case f.Prefix != "":
		return client.BadField("prefix", f.Prefix, ofWaiting)
	case len(f.States) > 0:
		return client.BadField("state", f.States[0], ofWaiting)
	case f.To != 0 && f.To <= f.From:
		return client.BadField("to", strconv.FormatInt(f.To, 10), fmt.Sprintf("is not after from, %d: give a later end, or leave it out", f.From))
	}
	return nil
}

// A tail is what is not told yet of a partition: the records from First up to before, of which the
// window has the last ones when it is loaded. It has what is told of them, and not their payloads: none can be told
// before each partition has one, and a record may have 16 MiB.
//
//	First ........ | window | before ... told already
type tail struct {
	*Partition
	before int64
	window []client.DeadLetter
	low    int64 // offset that the window begins at; before: it is not loaded
	span   int64 // offsets to load at a time
}

func newTail(p *Partition, places map[place]int64) *tail {
	t := &tail{Partition: p, before: p.Next, span: firstSpan}
	if at, ok := places[place{p.TopicID, p.Number}]; ok {
		t.before = min(at, p.Next)
	}
	t.low = t.before
	return t
}

func (t *tail) done() bool { return t.before <= t.First }

// next is what is to be loaded.
func (t *tail) next() Span { return Span{t.Partition, max(t.First, t.before-t.span), t.before} }

// load takes in what was read of next. What is not whole cannot be told: its last records, which come
// first, are missing. Then less is asked for.
func (t *tail) load(s Stretch, targetOf func(topic string) string) {
	next := t.next()
	if !s.Whole {
		t.span = max(1, min(t.span, next.To-next.From)/8)
		return
	}
	t.window, t.low = make([]client.DeadLetter, len(s.Records)), next.From
	for i := range s.Records {
		t.window[i] = tell(t.Partition, &s.Records[i], targetOf)
	}
	if len(t.window) == 0 {
		t.before = t.low
	}
}

// take returns the newest record that is loaded, which is told then.
func (t *tail) take() client.DeadLetter {
	last := len(t.window) - 1
	told := t.window[last]
	t.window, t.before = t.window[:last], told.Offset
	if last == 0 {
		t.before = t.low
	}
	return told
}

// A walk goes back through all partitions by the time of their records.
type walk struct {
	desk    *Desk
	filter  client.Filter
	until   time.Time
	tails   []*tail
	scanned int
	read    int  // bytes
	moved   bool // the next page would begin elsewhere
	page    client.DeadLetterPage
}

// run fills the page. A record is told only when those of all other partitions that may be newer are
// loaded.
func (w *walk) run(ctx context.Context, limit int) error {
	for len(w.page.DeadLetters) < limit && w.scanned < mostScanned {
		bare := w.bare()
		if len(bare) > 0 {
			if w.moved && (w.read > mostRead || w.desk.now().After(w.until)) {
				return nil
			}
			if err := w.load(ctx, bare); err != nil {
				return err
			}
			continue
		}
		t := w.newest()
		if t == nil {
			return nil
		}
		told := t.take()
		w.scanned, w.moved = w.scanned+1, true
		if Means(&w.filter, &told) {
			told.Replayed = w.desk.store.Replayed(t.marks(), told.Offset)
			w.page.DeadLetters = append(w.page.DeadLetters, told)
		}
	}
	return nil
}

// bare returns the tails of which nothing is loaded though there may be some.
func (w *walk) bare() (bare []*tail) {
	for _, t := range w.tails {
		if len(t.window) == 0 && !t.done() {
			bare = append(bare, t)
		}
	}
	return bare
}

func (w *walk) load(ctx context.Context, bare []*tail) error {
	spans := make([]Span, len(bare))
	for i, t := range bare {
		spans[i] = t.next()
	}
	stretches, err := w.desk.kafka.Read(ctx, spans, mostAtOnce)
	if err != nil {
		return inTime(ctx, "read dead letters", err)
	}
	for i, t := range bare {
		for j := range stretches[i].Records {
			w.read += stretches[i].Records[j].Size()
		}
		before := t.before
		t.load(stretches[i], w.desk.targetOf)
		w.moved = w.moved || t.before != before
	}
	return nil
}

// newest returns the tail with the newest record, nil if there are no more.
func (w *walk) newest() *tail {
	var newest *tail
	for _, t := range w.tails {
		if len(t.window) > 0 && (newest == nil || compare(t, newest) > 0) {
			newest = t
		}
	}
	return newest
}

// compare is by time, and of one time by the place, so that the order is the same each time.
func compare(a, b *tail) int {
	return cmp.Or(cmp.Compare(a.window[len(a.window)-1].Time, b.window[len(b.window)-1].Time), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
}

// Means reports whether the filter means the dead letter.
func Means(f *client.Filter, l *client.DeadLetter) bool {
	return (f.Topic == "" || l.DelayTopic == f.Topic) && (f.Target == "" || l.Target == f.Target) && (f.Code == "" || l.Code == f.Code) &&
		l.Time >= f.From && (f.To == 0 || l.Time < f.To)
}
