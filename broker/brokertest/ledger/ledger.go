package ledger

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Ledger is what is known of one run. All times are true ones, whatever clocks the nodes had,
// but for those that are said to be a node's.
type Ledger struct {
	Begin time.Time // when the first node started
	Quiet time.Time // when the last fault had been mended
	End   time.Time // when the last fact was gathered

	Heartbeat      time.Duration // of Raft
	Discovery      time.Duration // how often the delay topics are looked for
	MissingTimeout time.Duration // after which what is due for a missing target is a dead letter
	// LongestMissingTimeout is that of the route for which it is longest: routes change, too.
	LongestMissingTimeout time.Duration
	DeadLetters           string        // the dead-letter topic
	MaxSkew               time.Duration // that a clock may differ by from those of the others; 0: they are not compared
	Each                  time.Duration // that a message keeps the next one of its target waiting while all is well, of many that are due

	Records    []Record
	Changes    []Change
	Deliveries []Delivery // each partition's in order of offset
	Pending    []Message  // at the end, as storage has them
	Marks      Marks      // of the claim, at that time
	Faults     []Fault
	Clocks     []Clock
	Terms      []Term
	Costs      Costs
	Log        Log
	Found      []Problem // what was judged when it was gathered: nodes that differ, say
}

// An Identity tells records apart. The origin alone does not: a topic that is created anew has the
// same offsets again.
type Identity struct{ Origin, Value string }

// A Record is what a producer wrote to a delay topic and what has to come of it.
type Record struct {
	Identity
	Topic   string    // the delay topic
	At      time.Time // when it was written
	Target  string    // where it has to come out: its target, or the dead-letter topic; "": nowhere, it cancels
	Due     int64     // epoch milliseconds; 0 for one that is a dead letter from the beginning
	Aborted bool      // in a transaction that was
	Large   bool      // perhaps more than its target takes
	Gone    bool      // deleted from the delay topic, perhaps before it was read
}

// A Delivery is a record of a target or a dead-letter topic as a consumer sees it.
type Delivery struct {
	Identity
	Topic     string
	Partition int32
	Offset    int64
	Key       string
	At        time.Time // when it was sent
	Due       int64     // 0 for a dead letter
	Seq       uint64    // 0 for a dead letter
	Number    int       // of the Change that it is by; 0: by none
	Absent    bool      // a dead letter that says that its target was missing or forbidden
	Unplaced  bool      // a dead letter that says that its target has no such partition
}

// A Message waits in storage.
type Message struct {
	Identity
	Target string
	Due    int64
	Seq    uint64
	Number int // of the Change that it is by; 0: by none
	// Unreadable says that its body does not tell what it is; then nothing is known but the mark.
	Unreadable bool
}

// A Mark is a place in the order of delivery.
type Mark struct {
	Due int64
	Seq uint64
}

func (m Mark) less(other Mark) bool {
	return m.Due < other.Due || m.Due == other.Due && m.Seq < other.Seq
}

// Marks are where a new term begins to read.
type Marks struct {
	Main  Mark
	Holds map[string]Mark // of targets that have their own
}

// A Clock says how wrong a node's clock is from a moment on until the next one says otherwise.
type Clock struct {
	Node   string
	At     time.Time
	Offset time.Duration // positive: the clock is ahead
	Drift  time.Duration // gained in each second since
}

// A Term is the time for which a node led.
type Term struct {
	Node        string
	Begin, Over time.Time // Over is zero while it lasts
	Reason      string    // why it ended; empty: its node went down
}

// A Problem is a promise that was not kept.
type Problem struct {
	Check string `json:"check"`
	Text  string `json:"text"`
}

// mostEach bounds the problems that one check reports: a thousand lost messages are one find.
const mostEach = 5

// Judge returns what the ledger holds against the promises, the checks in order of their gravity.
func (l *Ledger) Judge() []Problem {
	if len(l.Records) == 0 {
		return []Problem{{"script", "nothing was produced: a run that checks nothing proves nothing"}}
	}
	changed := *l
	changed.Records = l.amended()
	j := judge{Ledger: &changed, index: newIndex(&changed), calms: make(map[[2]string][]span), delays: make(map[[2]string][]span)}
	for _, check := range []func(){
		j.checkFaults, j.checkFates, j.checkTakenOnce, j.checkLog, j.checkEnded, j.checkChanges, j.checkHeld, j.checkDeadLetters, j.checkLetters, j.checkMarks, j.checkPassed, j.checkEarly,
		j.checkOrder, j.checkKeys, j.checkDuplicates, j.checkCopies, j.checkRepeats, j.checkLateness, j.checkBesideStalled, j.checkMissing, j.checkTerms, j.checkQuiet, j.checkCosts,
	} {
		check()
	}
	for _, p := range l.Found {
		j.problem(p.Check, "%s", p.Text)
	}
	return j.summed()
}

// A judge gathers problems.
type judge struct {
	*Ledger
	index
	problems []Problem
	calms    map[[2]string][]span // what disturbed has returned
	delays   map[[2]string][]span // what delayed has returned
	upset    []span               // what unrest has
}

func (j *judge) problem(check, format string, args ...any) {
	j.problems = append(j.problems, Problem{check, fmt.Sprintf(format, args...)})
}

// summed returns the first few problems of each check, and how many more there are.
func (j *judge) summed() []Problem {
	count := make(map[string]int)
	var kept []Problem
	for _, p := range j.problems {
		if count[p.Check]++; count[p.Check] <= mostEach {
			kept = append(kept, p)
		}
	}
	for i := len(kept) - 1; i >= 0; i-- { // behind the last one of each check
		check := kept[i].Check
		if more := count[check] - mostEach; more > 0 {
			kept = slices.Insert(kept, i+1, Problem{check, fmt.Sprintf("and %d more", more)})
			delete(count, check)
		}
	}
	return kept
}

// An index finds facts by the record that they are about.
type index struct {
	records map[Identity][]*Record // several only if a topic was made anew and values come again
	copies  map[Identity][]*Delivery
	pending map[Identity][]*Message
	ended   map[Identity]int       // messages that the log has ended
	letters map[Identity]time.Time // when the log first made them dead letters
	came    map[string][]*Delivery // to each topic, in order of time
}

func newIndex(l *Ledger) index {
	x := index{make(map[Identity][]*Record), make(map[Identity][]*Delivery), make(map[Identity][]*Message), l.Log.countEnded(), make(map[Identity]time.Time), make(map[string][]*Delivery)}
	for i := range l.Records {
		r := &l.Records[i]
		x.records[r.Identity] = append(x.records[r.Identity], r)
	}
	for i := range l.Deliveries {
		d := &l.Deliveries[i]
		x.copies[d.Identity] = append(x.copies[d.Identity], d)
		x.came[d.Topic] = append(x.came[d.Topic], d)
	}
	for _, came := range slices.AppendSeq(slices.Collect(maps.Values(x.came)), maps.Values(x.copies)) {
		slices.SortStableFunc(came, func(a, b *Delivery) int { return a.At.Compare(b.At) })
	}
	for _, a := range l.Log.Accepted {
		if first, known := x.letters[a.Identity]; a.Letter && (!known || a.At.Before(first)) {
			x.letters[a.Identity] = a.At
		}
	}
	for i := range l.Pending {
		m := &l.Pending[i]
		x.pending[m.Identity] = append(x.pending[m.Identity], m)
	}
	return x
}

// cameBetween returns what came to a topic from one moment on and before another.
func (x *index) cameBetween(topic string, from, to time.Time) []*Delivery {
	came := x.came[topic]
	at := func(d *Delivery, t time.Time) int { return d.At.Compare(t) }
	first, _ := slices.BinarySearchFunc(came, from, at)
	behind, _ := slices.BinarySearchFunc(came, to, at)
	return came[first:max(first, behind)]
}
