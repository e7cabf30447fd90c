package broker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// The states of a partition of a delay topic, as they stand in the status and in metrics.
const (
	StateRead        = "read"        // nothing keeps it from being read
	StateStart       = "start"       // its route does not say where to begin
	StateForbidden   = "forbidden"   // we may not read or describe it
	StateUnavailable = "unavailable" // Kafka does not tell of it for now
	StateDoubtful    = "doubtful"    // Kafka seems to have lost records, and is asked again
	StateFailing     = "failing"     // what Kafka gives cannot be read
)

// readingStates are all of them, in the order of the constants.
func readingStates() []string {
	return []string{StateRead, StateStart, StateForbidden, StateUnavailable, StateDoubtful, StateFailing}
}

const (
	// mostUnread bounds what the status lists of what is not read, mostUnreadNamed what its problem does.
	mostUnread      = 100
	mostUnreadNamed = 10
	// lossShown is how long a loss of records stands among the problems.
	lossShown = time.Hour
)

// A ReadingStatus says how many partitions of delay topics are read, and which are not.
type ReadingStatus struct {
	Partitions map[string]int `json:"partitions"` // by state, all states
	Unread     []UnreadStatus `json:"unread"`     // all states but read; 100 entries at most
}

// An UnreadStatus is what partitions of one topic have in common that are not read.
type UnreadStatus struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
	State      string  `json:"state"`
	Reason     string  `json:"reason"`
}

// tellReading puts into the report what is read and what is not. silent is why Kafka does
// not answer at all, or nil.
func (d *discovery) tellReading(stored map[partitionID]storage.Position, silent error) {
	reading := &ReadingStatus{Partitions: make(map[string]int), Unread: []UnreadStatus{}}
	for _, state := range readingStates() {
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
			state, reason := StateUnavailable, silent
			if silent == nil {
				state, reason = t.state(number, position, known, failures[id])
			}
			if reading.Partitions[state]++; state != StateRead {
				reading.add(name, number, state, reason)
			}
		}
	}
	d.Report.setReading(reading)
	if silent == nil { // else the problem "kafka" says it all
		d.Report.setProblem("source", reading.problem())
	}
	d.Report.setProblem("lost", d.loss.problem())
}

// state returns whether the partition is read, and else why not.
func (t *delayTopic) state(number int32, position storage.Position, known bool, failure error) (string, error) {
	p := t.partitions[number]
	switch {
	case errors.Is(t.err, ErrSourceForbidden):
		return StateForbidden, t.err
	case errors.Is(failure, ErrSourceForbidden):
		return StateForbidden, failure
	case p == nil:
		return StateUnavailable, t.err
	case known && position.Next == awaitsStart:
		return StateStart, errNoStart
	case p.doubt.kind != intact:
		return StateDoubtful, fmt.Errorf("%w: read to offset %d, would go on at %d", p.doubt.kind, position.Next, p.doubt.next)
	case failure != nil:
		return StateFailing, failure
	case t.err != nil:
		return StateUnavailable, t.err
	case p.err != nil:
		return StateUnavailable, p.err
	case p.stuck:
		return StateFailing, errNothingComes
	case !known:
		return StateUnavailable, errNotToldYet
	}
	return StateRead, nil
}

// add puts the partition, which is the last one of its topic so far, to others of the same fate.
func (r *ReadingStatus) add(topic string, partition int32, state string, why error) {
	entry := UnreadStatus{Topic: topic, Partitions: []int32{partition}, State: state, Reason: why.Error()}
	for i := len(r.Unread) - 1; i >= 0 && r.Unread[i].Topic == topic; i-- {
		if u := &r.Unread[i]; u.State == state && u.Reason == entry.Reason {
			u.Partitions = append(u.Partitions, partition)
			return
		}
	}
	if len(r.Unread) < mostUnread {
		r.Unread = append(r.Unread, entry)
	}
}

// problem says it in one line; what waits for a start is a problem of its own.
func (r *ReadingStatus) problem() string {
	var named []string
	for _, u := range r.Unread {
		if u.State == StateStart {
			continue
		}
		if len(named) == mostUnreadNamed {
			named = append(named, "and others")
			break
		}
		numbers := strings.Trim(strings.ReplaceAll(fmt.Sprint(u.Partitions), " ", ","), "[]")
		named = append(named, fmt.Sprintf("%s/%s (%s: %s)", u.Topic, numbers, u.State, u.Reason))
	}
	if len(named) == 0 {
		return ""
	}
	return "not read: " + strings.Join(named, ", ")
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
	if len(partitions) > mostUnreadNamed {
		partitions, more = partitions[:mostUnreadNamed], " and others"
	}
	return fmt.Sprintf("%d records were deleted by Kafka within the last hour or so before they could be read, of %s%s: raise the retention of the delay topics",
		total, strings.Join(partitions, ", "), more)
}
