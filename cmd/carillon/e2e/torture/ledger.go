package torture

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Fate is what is to become of a record.
type Fate string

// The fates. Each record has exactly one.
const (
	Delivered    Fate = "delivered"
	DeadLettered Fate = "dead-lettered"
	Later        Fate = "due later"
)

// A Message is one record of a delay topic, as it was asked for.
type Message struct {
	Number int
	Due    int64  // epoch milliseconds
	Topic  string // where it is to come: its target, or the dead-letter topic
	Fate   Fate   // Delivered or DeadLettered
	Timely bool   // whether its lateness counts: false for targets that are missing on purpose
}

// A Copy is a record as it stands in a target or dead-letter topic.
type Copy struct {
	Topic     string
	Partition int32
	Offset    int64
	Written   int64 // its timestamp, epoch milliseconds
	Came      time.Time
	Number    int
	Origin    string // topic/partition/offset in the delay topic
	Seq       string // delivered-seq; dead letters have none
	Due       int64  // delivered-for; 0 for dead letters
}

// place is where a copy stands: what a consumer reads again is no other copy.
type place struct {
	topic     string
	partition int32
	offset    int64
}

// entry is what is known of one message.
type entry struct {
	Message
	sent, acked time.Time // acked: when Kafka had taken the record; zero: not yet
	failed      error     // what Kafka's client said when it gave up
	origin      string
	copies      []Copy
}

// counted is the moment from which lateness counts.
func (e *entry) counted() time.Time {
	if due := time.UnixMilli(e.Due); due.After(e.acked) {
		return due
	}
	return e.acked
}

// OnTime is the lateness up to which a delivery counts as on time when recovery is measured.
const OnTime = 500 * time.Millisecond

// calm is for how long all must have come on time before a fault counts as recovered from.
const calm = time.Second

// A Ledger holds what was asked for and what came, record by record. Its methods may be called from
// several goroutines.
type Ledger struct {
	mu       sync.Mutex
	entries  map[int]*entry
	open     map[int]*entry // without a copy yet
	read     map[place]bool
	problems []string

	// Of copies that count for lateness: when the last came, and those of the last second that were late.
	lastCame time.Time
	lately   []latecomer
}

type latecomer struct {
	came time.Time
	late time.Duration
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{entries: map[int]*entry{}, open: map[int]*entry{}, read: map[place]bool{}}
}

// Sent enters a message that is handed to Kafka's client.
func (l *Ledger) Sent(m Message, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &entry{Message: m, sent: now}
	l.entries[m.Number], l.open[m.Number] = e, e
}

// Taken enters Kafka's answer: where the record stands, or that it failed. A client that gives up does not know whether
// Kafka has it: so such a record may come or not. More than one in a thousand prove less than a run is to prove, and are a
// problem each (Close).
func (l *Ledger) Taken(number int, origin string, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[number]
	if err != nil {
		e.failed = err
		delete(l.open, number)
		return
	}
	e.acked, e.origin = now, origin
}

// Enter enters a copy that was read.
func (l *Ledger) Enter(c Copy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := place{c.Topic, c.Partition, c.Offset}
	if l.read[at] {
		return
	}
	l.read[at] = true
	e, known := l.entries[c.Number]
	if !known {
		l.problem("%s/%d/%d holds message %d, which nobody sent", c.Topic, c.Partition, c.Offset, c.Number)
		return
	}
	e.copies = append(e.copies, c)
	if len(e.copies) > 1 {
		return
	}
	delete(l.open, c.Number)
	if !e.Timely {
		return
	}
	l.lastCame = c.Came
	l.lately = slices.DeleteFunc(l.lately, func(old latecomer) bool { return c.Came.Sub(old.came) > calm })
	// Kafka's answer to the producer may come after the copy; the message is not late then.
	if late := c.Came.Sub(e.counted()); !e.acked.IsZero() && late > OnTime {
		l.lately = append(l.lately, latecomer{came: c.Came, late: late})
	}
}

// Calm reports whether for a second nothing was later than that, and something came, since the last
// fault was over. What that fault has held up shows only when it is late.
func (l *Ledger) Calm(over, now time.Time, late time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(over) < calm+late || now.Sub(l.lastCame) > calm {
		return false
	}
	for _, e := range l.open {
		if e.acked.IsZero() && now.Sub(e.sent) > late || e.isOverdue(now, late) && e.Timely {
			return false
		}
	}
	for _, c := range l.lately {
		if now.Sub(c.came) < calm && c.late > late {
			return false
		}
	}
	return true
}

// Open returns how many messages are without a fate although their time has come, and how many wait
// for a time still to come.
func (l *Ledger) Open(now time.Time) (overdue, later int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.open {
		if e.isOverdue(now, 0) || e.acked.IsZero() {
			overdue++
		} else {
			later++
		}
	}
	return overdue, later
}

// Read returns how many records of a topic were read.
func (l *Ledger) Read(topic string) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := range l.read {
		if at.topic == topic {
			n++
		}
	}
	return n
}

func (e *entry) isOverdue(now time.Time, by time.Duration) bool {
	return !e.acked.IsZero() && now.Sub(e.counted()) > by
}

func (l *Ledger) problem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// Sums are the fates, counted, and what must never be.
type Sums struct {
	Produced, Delivered, DeadLettered, Later int
	InDoubt                                  int // of which nobody knows whether Kafka has them, and that did not come
	Duplicates                               int // copies after the first

	Lost, Early, Twice, TwoFates, Disordered int
	Problems                                 []string // each of these in words, and what else is wrong
}

// Close holds everything against the promises. All topics must have been read to their ends.
func (l *Ledger) Close(now time.Time) Sums {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Sums{Produced: len(l.entries), Problems: slices.Clone(l.problems)}
	say := func(count *int, format string, args ...any) {
		*count++
		s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
	}
	origins := map[string]string{} // by seq
	failed := 0
	for _, e := range l.sorted() {
		if e.failed != nil {
			if failed++; failed > len(l.entries)/1000 {
				s.Problems = append(s.Problems, fmt.Sprintf("message %d was not produced: %v", e.Number, e.failed))
			}
			if len(e.copies) > 0 {
				e.origin = e.copies[0].Origin
			}
		}
		switch {
		case len(e.copies) > 0 && e.copies[0].Topic != e.Topic:
			say(&s.TwoFates, "message %d (%s) came to %s, not to %s", e.Number, e.origin, e.copies[0].Topic, e.Topic)
		case len(e.copies) > 0 && e.Fate == DeadLettered:
			s.DeadLettered++
		case len(e.copies) > 0:
			s.Delivered++
		case e.failed != nil:
			s.InDoubt++
		case e.isOverdue(now, 0):
			say(&s.Lost, "message %d (%s, due %s for %s) is lost", e.Number, e.origin, clock(e.Due), e.Topic)
		default:
			s.Later++
		}
		s.Duplicates += max(0, len(e.copies)-1)
		for i, c := range e.copies {
			if c.Written < e.Due && e.Fate == Delivered {
				say(&s.Early, "message %d (%s, due %s) came %d ms early", e.Number, e.origin, clock(e.Due), e.Due-c.Written)
			}
			if c.Origin != e.origin {
				say(&s.Twice, "message %d was produced as %s and came as %s", e.Number, e.origin, c.Origin)
			}
			if c.Seq != e.copies[0].Seq {
				say(&s.Twice, "message %d (%s) was taken in twice, as %s and %s", e.Number, e.origin, e.copies[0].Seq, c.Seq)
			}
			if i > 0 && c.Topic != e.copies[0].Topic {
				say(&s.TwoFates, "message %d (%s) came to %s and %s", e.Number, e.origin, e.copies[0].Topic, c.Topic)
			}
			if e.Fate == Delivered && c.Due != e.Due {
				s.Problems = append(s.Problems, fmt.Sprintf("message %d (%s) was delivered for %s, not %s", e.Number, e.origin, clock(c.Due), clock(e.Due)))
			}
			if other, taken := origins[c.Seq]; taken && other != c.Origin && c.Seq != "" {
				say(&s.Twice, "%s and %s were both delivered as %s", other, c.Origin, c.Seq)
			}
			origins[c.Seq] = c.Origin
		}
	}
	for _, what := range l.disordered() {
		say(&s.Disordered, "%s", what)
	}
	return s
}

func (l *Ledger) sorted() []*entry {
	all := make([]*entry, 0, len(l.entries))
	for _, e := range l.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05.000") }
