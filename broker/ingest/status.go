package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/storage"
)

// lossShown is how long a loss of records stands among the problems.
const lossShown = time.Hour

// tellReading puts into the report what is read and what is not. silent is why Kafka does
// not answer at all, or nil.
func (d *discovery) tellReading(stored map[partitionID]storage.Position, silent error) {
	reading := &report.Reading{Partitions: make(map[string]int), Unread: []report.Unread{}}
	for _, state := range report.ReadingStates() {
		reading.Partitions[state] = 0
	}
	failures := make(map[partitionID]error)
	for _, f := range d.Source.Failures() {
		failures[partitionID{f.TopicID, f.Partition}] = f.Err
	}
	byNumber := make(map[string][]int32) // partitions that are known by their positions alone
	for id, position := range stored {
		if t := d.topics[position.Topic]; t != nil && t.id == (TopicID{}) && !slices.Contains(byNumber[position.Topic], id.partition) {
			byNumber[position.Topic] = append(byNumber[position.Topic], id.partition)
		}
	}
	for _, name := range d.topics.names() {
		t := d.topics[name]
		numbers := t.numbers()
		if t.id == (TopicID{}) {
			numbers = slices.Sorted(slices.Values(byNumber[name]))
		}
		for _, number := range numbers {
			id := partitionID{t.id, number}
			position, known := stored[id]
			state, reason := report.StateUnavailable, silent
			if silent == nil {
				state, reason = t.state(number, position, known, failures[id])
			}
			if reading.Partitions[state]++; state != report.StateRead {
				reading.Add(name, number, state, reason)
			}
		}
	}
	d.Report.SetReading(reading)
	if silent == nil { // else the problem "kafka" says it all
		d.Report.SetProblem("source", reading.Problem())
	}
	d.Report.SetProblem("lost", d.loss.problem())
}

// tellAwaitingStart puts into the problems which partitions wait for routes[].start.
func (d *discovery) tellAwaitingStart(stored map[partitionID]storage.Position) {
	var waiting []string
	for _, name := range d.topics.names() {
		t := d.topics[name]
		for _, number := range t.numbers() {
			if position, ok := stored[partitionID{t.id, number}]; ok && position.Next == awaitsStart {
				waiting = append(waiting, fmt.Sprintf("%s/%d", name, number))
			}
		}
	}
	problem := ""
	if len(waiting) > 0 {
		problem = "not read, since they held records when the cluster was born: " + strings.Join(waiting, ", ") +
			": set routes[].start to earliest or latest for them"
	}
	d.Report.SetProblem("start", problem)
}

// state returns whether the partition is read, and else why not.
func (t *delayTopic) state(number int32, position storage.Position, known bool, failure error) (string, error) {
	p := t.partitions[number]
	switch {
	case errors.Is(t.err, ErrSourceForbidden):
		return report.StateForbidden, t.err
	case errors.Is(failure, ErrSourceForbidden):
		return report.StateForbidden, failure
	case p == nil:
		return report.StateUnavailable, t.err
	case known && position.Next == awaitsStart:
		return report.StateStart, errNoStart
	case p.doubt.kind != intact:
		return report.StateDoubtful, fmt.Errorf("%w: read to offset %d, would go on at %d", p.doubt.kind, position.Next, p.doubt.next)
	case p.short && known:
		return report.StateDoubtful, fmt.Errorf("read to offset %d, and it has ended at %d since %s: %w",
			position.Next, p.end, p.shortSince.UTC().Format(time.RFC3339), errShort)
	case failure != nil:
		return report.StateFailing, failure
	case t.err != nil:
		return report.StateUnavailable, t.err
	case p.err != nil:
		return report.StateUnavailable, p.err
	case p.stuck:
		return report.StateFailing, errNothingComes
	case !known:
		return report.StateUnavailable, errNotToldYet
	case p.hung:
		return report.StateTransaction, fmt.Errorf("%d records from offset %d on have waited since %s at least: %w",
			p.end-position.Next, position.Next, p.openSince.UTC().Format(time.RFC3339), errHung)
	}
	return report.StateRead, nil
}

// A loss is what Kafka deleted before it was read, in this term.
type loss struct {
	records map[string]int64 // by partition
	last    time.Time
}

// note counts records of one partition that are lost.
func (l *loss) note(m move) {
	if l.records == nil || time.Since(l.last) >= lossShown {
		l.records = make(map[string]int64)
	}
	l.records[fmt.Sprintf("%s/%d", m.Topic, m.Partition)] += m.Next - m.From
	l.last = time.Now()
}

func (l *loss) problem() string {
	if l.records == nil || time.Since(l.last) >= lossShown {
		return ""
	}
	var total int64
	for _, n := range l.records {
		total += n
	}
	partitions := slices.SortedFunc(maps.Keys(l.records), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.records[b], l.records[a]), cmp.Compare(a, b))
	})
	more := ""
	if len(partitions) > report.MostNamed {
		partitions, more = partitions[:report.MostNamed], " and others"
	}
	return fmt.Sprintf("%d records were deleted by Kafka within the last hour or so before they could be read, of %s%s: raise the retention of the delay topics",
		total, strings.Join(partitions, ", "), more)
}
