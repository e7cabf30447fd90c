// Package fitness knows what keeps a leader from leading well, and for how long it has: Kafka does not answer, or some of its
// brokers do not, or the disk has no room for messages. What follows from it is for package broker to decide.
package fitness

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/report"
)

// Patience is for how long a lack is taken for a moment's.
const Patience = 10 * time.Second

// lookForRoom is the time between two looks for room while there is none.
const lookForRoom = 100 * time.Millisecond

// mostUnseen is how long a lack of room that has not lasted for Patience yet may go without a look.
const mostUnseen = 10 * lookForRoom

// A Fitness follows over the looks of a term whether this node leads well. One goroutine uses it.
type Fitness struct {
	report    *report.Report
	room      func() error
	unreached func() []string // the addresses of Kafka brokers that do not answer
	cramped   time.Time       // since when there is no room; zero: there is
	partial   time.Time       // since when there are such brokers; zero: there are none
	fit       time.Time       // since when Kafka has answered and nothing was lacking; zero: not so
	lacked    time.Time       // when something was lacking last
	looked    time.Time       // when it was looked last
}

// New returns what follows the report of a term. room returns why this node may accept no message now, or nil, and unreached the
// addresses of the Kafka brokers that do not answer it; neither blocks.
func New(report *report.Report, room func() error, unreached func() []string) *Fitness {
	return &Fitness{report: report, room: room, unreached: unreached}
}

// A Lack is what keeps a node from leading well, and for how long it has without a gap.
type Lack struct {
	Silent    time.Duration // of Kafka; 0: it answers, or was not asked yet
	Cramped   time.Duration // 0: there is room
	NoRoom    error         // why there is none
	Partial   time.Duration // of some Kafka brokers; 0: all answer, as far as is known
	Unreached []string      // their addresses
}

// Look returns what this node lacks, and if that is nothing, for how long it has been fit: 0 until
// Kafka has answered.
func (f *Fitness) Look() (found Lack, fit time.Duration) {
	now := time.Now()
	silent, answering := f.report.Kafka()
	found.Silent = silent
	found.NoRoom = f.room()
	if now.Sub(f.looked) > mostUnseen && f.looked.Sub(f.cramped) < Patience {
		f.cramped = time.Time{} // there may have been room for moments meanwhile
	}
	f.looked = now
	found.Cramped = lasts(&f.cramped, found.NoRoom != nil, now)
	found.Unreached = f.unreached()
	found.Partial = lasts(&f.partial, len(found.Unreached) > 0, now)
	if answering == 0 || found.Any() {
		f.fit, f.lacked = time.Time{}, now
		return found, 0
	}
	if f.fit.IsZero() {
		if f.fit = now.Add(-answering); f.fit.Before(f.lacked) {
			f.fit = f.lacked
		}
	}
	return found, max(now.Sub(f.fit), 1)
}

// Whole notes that all Kafka brokers have answered just now, whatever is known of connections to them.
func (f *Fitness) Whole() { f.partial = time.Time{} }

// lasts notes since when it is so, and returns for how long it has been, 0 if it is not.
func lasts(since *time.Time, is bool, now time.Time) time.Duration {
	if !is {
		*since = time.Time{}
		return 0
	}
	if since.IsZero() {
		*since = now
	}
	return max(now.Sub(*since), 1)
}

// RoomMayReturn returns what wakes at the next look for room, nil when none is due before the next
// look at Kafka. A disk that is behind with its flushes lacks room for moments, again and again: so
// it is looked for often until it has been missed for so long that this is not the cause.
func (f *Fitness) RoomMayReturn() <-chan time.Time {
	if f.cramped.IsZero() || time.Since(f.cramped) >= Patience {
		return nil
	}
	return time.After(lookForRoom)
}

// SilenceLasts returns what wakes when Kafka has been silent for so long, nil when it answers or has been for longer.
func (f *Fitness) SilenceLasts(patience time.Duration) <-chan time.Time {
	silent, _ := f.report.Kafka()
	if silent == 0 || silent >= patience {
		return nil
	}
	return time.After(patience - silent)
}

// Any reports whether anything is lacking.
func (l Lack) Any() bool { return l.Silent > 0 || l.Cramped > 0 || l.Partial > 0 }

// Lasting returns what of it has lasted for so long.
func (l Lack) Lasting(patience time.Duration) Lack {
	if l.Silent < patience {
		l.Silent = 0
	}
	if l.Cramped < patience {
		l.Cramped, l.NoRoom = 0, nil
	}
	if l.Partial < patience {
		l.Partial, l.Unreached = 0, nil
	}
	return l
}

// IsPartial reports whether some Kafka brokers that do not answer are all that is lacking.
func (l Lack) IsPartial() bool { return l.Partial > 0 && l.Silent == 0 && l.NoRoom == nil }

// String says what is lacking on one line.
func (l Lack) String() string {
	var lacks []string
	if l.Silent > 0 {
		lacks = append(lacks, fmt.Sprintf("Kafka has not answered for %v", l.Silent.Round(time.Second)))
	}
	if l.NoRoom != nil {
		lacks = append(lacks, fmt.Sprintf("its disk has had no room for messages for %v", l.Cramped.Round(time.Second)))
	}
	if l.Partial > 0 {
		lacks = append(lacks, fmt.Sprintf("the Kafka brokers %s have not answered for %v", few(l.Unreached), l.Partial.Round(time.Second)))
	}
	return strings.Join(lacks, ", and ")
}

// Reason says why leadership went from one member to another one.
func (l Lack) Reason(from, to string) string {
	switch {
	case l.IsPartial():
		return fmt.Sprintf("the Kafka brokers %s did not answer %s for %v, and %s, which leads now, reaches more", few(l.Unreached), from, l.Partial.Round(time.Second), to)
	case l.NoRoom != nil && l.Silent < l.Cramped:
		return fmt.Sprintf("%s had no room for messages for %v, and %s has, which leads now: %v", from, l.Cramped.Round(time.Second), to, l.NoRoom)
	}
	return fmt.Sprintf("Kafka did not answer %s for %v, and it answers %s, which leads now", from, l.Silent.Round(time.Second), to)
}

// few lists the names, the first of them if there are many.
func few(names []string) string {
	if len(names) > report.MostNamed {
		return strings.Join(names[:report.MostNamed], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}
