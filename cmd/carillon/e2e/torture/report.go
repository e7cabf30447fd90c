package torture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Strike is a fault that was carried out.
type Strike struct {
	Fault
	Episode    int
	Struck     string // what it hit: the node that was leader, say
	Begin, End time.Time
}

// A span of time, both ends included.
type span struct{ from, to time.Time }

// A row is the account of one kind of fault.
type row struct {
	name               string
	faults, duplicates int
	recovered          []time.Duration
}

// Rows of the report that are no kinds.
const (
	together = "of these, overlapping"
	nothing  = "no fault"
)

// A Run is what was done to the ledger's records.
type Run struct {
	Kinds     []Kind // those that could come
	Strikes   []Strike
	From      time.Time // what was due before came while everything started
	Elections int       // by how much the term has grown
}

// Report returns the account of a run, for people: fates, duplicates and recovery by kind of fault,
// lateness during faults and after. A duplicate is counted for the fault during which, or on the way
// back from which, its copy was written. The time to recover is counted from the end of the fault
// until all had come on time for a second; of faults that overlap, from the end of the last one.
func (l *Ledger) Report(s Sums, run Run) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	kinds, strikes, covered := run.Kinds, run.Strikes, l.covered(run)
	rows := map[string]*row{together: {name: together}, nothing: {name: nothing}}
	for _, kind := range kinds {
		rows[string(kind)] = &row{name: string(kind)}
	}
	for i, strike := range strikes {
		r := rows[string(strike.Kind)]
		r.faults++
		if !isAlone(covered, i) {
			r = rows[together]
			r.faults++
		}
		if isLast(strikes, covered, i) {
			r.recovered = append(r.recovered, covered[i].to.Sub(strike.End))
		}
	}
	for _, e := range l.entries {
		for _, again := range e.copies[min(1, len(e.copies)):] {
			rows[culprit(strikes, covered, time.UnixMilli(again.Written))].duplicates++
		}
	}

	var b strings.Builder
	fmt.Fprintf(&b, "%d records produced: %d delivered, %d dead-lettered, %d due later, %d in doubt\n", s.Produced, s.Delivered, s.DeadLettered, s.Later, s.InDoubt)
	fmt.Fprintf(&b, "%d lost, %d early, %d taken in twice, %d with a wrong or second fate, %d out of order, %d duplicates, %d elections\n",
		s.Lost, s.Early, s.Twice, s.TwoFates, s.Disordered, s.Duplicates, run.Elections)
	fmt.Fprintf(&b, "%-24s %6s %10s   %s\n", "fault", "faults", "duplicates", "on time again after (p50, max; of)")
	for _, kind := range kinds {
		if r := rows[string(kind)]; r.faults > 0 {
			r.write(&b)
		}
	}
	rows[together].write(&b)
	rows[nothing].write(&b)
	l.writeLateness(&b, run, covered)
	return b.String()
}

func (r *row) write(b *strings.Builder) {
	fmt.Fprintf(b, "%-24s %6d %10d", r.name, r.faults, r.duplicates)
	if n := len(r.recovered); n > 0 {
		slices.Sort(r.recovered)
		fmt.Fprintf(b, "   %7s %7s; %d", seconds(at(r.recovered, 0.5)), seconds(at(r.recovered, 1)), n)
	}
	b.WriteByte('\n')
}

// writeLateness parts the messages by what happened while they were to come, or on their way.
func (l *Ledger) writeLateness(b *strings.Builder, run Run, covered []span) {
	parts := []struct {
		name string
		late []time.Duration
	}{{name: "during faults"}, {name: "until on time again"}, {name: "otherwise"}}
	for _, e := range l.entries {
		if !e.Timely || len(e.copies) == 0 || e.acked.IsZero() {
			continue
		}
		to, part := e.counted(), 2
		if to.Before(run.From) {
			continue
		}
		came := e.copies[0].Came
		for i := range run.Strikes {
			if came.Before(covered[i].from) || to.After(covered[i].to) {
				continue
			}
			if part = min(part, 1); !to.After(run.Strikes[i].End) {
				part = 0
			}
		}
		parts[part].late = append(parts[part].late, max(0, came.Sub(to)))
	}
	fmt.Fprintf(b, "%-24s %8s %8s %8s %8s\n", "lateness of records due", "records", "p50", "p99", "max")
	for _, part := range parts {
		if len(part.late) == 0 {
			continue
		}
		slices.Sort(part.late)
		fmt.Fprintf(b, "%-24s %8d %8s %8s %8s\n", part.name, len(part.late), seconds(at(part.late, 0.5)), seconds(at(part.late, 0.99)), seconds(at(part.late, 1)))
	}
}

// lateSpans returns when messages were late, in order: from the moment in which each ceased to be on
// time until it came. What never came was late for ever, and fails the run anyway.
func (l *Ledger) lateSpans() []span {
	var bad []span
	for _, e := range l.entries {
		if !e.Timely || len(e.copies) == 0 || e.acked.IsZero() {
			continue
		}
		if came, limit := e.copies[0].Came, e.counted().Add(OnTime); came.After(limit) {
			bad = append(bad, span{limit, came})
		}
	}
	slices.SortFunc(bad, func(a, b span) int { return a.from.Compare(b.from) })
	return bad
}

// Unexplained returns, in words, each record that came again while no fault was on or recovered from.
func (l *Ledger) Unexplained(run Run) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	covered := l.covered(run)
	for i := range covered { // what was given up may go out again last of all that waited
		covered[i].to = covered[i].to.Add(calm)
	}
	var found []string
	for _, e := range l.sorted() {
		for _, again := range e.copies[min(1, len(e.copies)):] {
			if culprit(run.Strikes, covered, time.UnixMilli(again.Written)) == nothing {
				found = append(found, fmt.Sprintf("message %d (%s) was written again at %s, and no fault was on", e.Number, e.origin, clock(again.Written)))
			}
		}
	}
	return found
}

// covered returns for each fault the time from its beginning until all was on time again.
func (l *Ledger) covered(run Run) []span {
	bad := l.lateSpans()
	covered := make([]span, len(run.Strikes))
	for i, strike := range run.Strikes {
		covered[i] = span{strike.Begin, recovery(bad, strike.End)}
	}
	return covered
}

// recovery returns when, from end on, everything was on time again and stayed so for a second.
func recovery(bad []span, end time.Time) time.Time {
	back := end
	for _, late := range bad {
		if late.from.After(back.Add(calm)) {
			break
		}
		if late.to.After(back) {
			back = late.to
		}
	}
	return back
}

// isLast reports whether no fault ends later that lasts while this one is not recovered from.
func isLast(strikes []Strike, covered []span, i int) bool {
	for j, other := range strikes {
		if j != i && !other.Begin.After(covered[i].to) && other.End.After(strikes[i].End) {
			return false
		}
	}
	return true
}

func isAlone(covered []span, i int) bool {
	for j, other := range covered {
		if j != i && !other.from.After(covered[i].to) && !other.to.Before(covered[i].from) {
			return false
		}
	}
	return true
}

// culprit names the row to which something that happened then belongs.
func culprit(strikes []Strike, covered []span, then time.Time) string {
	name := nothing
	for i, c := range covered {
		if then.Before(c.from) || then.After(c.to) {
			continue
		}
		if name != nothing {
			return together
		}
		name = string(strikes[i].Kind)
	}
	return name
}

// at returns the value at a share of what is sorted and not empty.
func at[T cmp.Ordered](sorted []T, share float64) T { return sorted[int(share*float64(len(sorted)-1))] }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
