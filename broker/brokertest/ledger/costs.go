package ledger

import (
	"slices"
	"time"
)

// Costs are what the cluster has spent in all. Time that is virtual shows none of it.
type Costs struct {
	Dials      int64  // connections to Kafka that were tried
	Lookups    int64  // requests that ask about topics and offsets
	Produces   int64  // requests that write
	Scanned    int64  // messages that were looked at in storage to find what is due
	Claims     int64  // commands that claim
	ClaimBytes int64  // what they take in the log, from feature level two on
	Parked     int64  // holds that they have set
	CatchUps   int64  // messages there had been when claims lifted holds, or what had failed was tried again, summed over these moments
	Goroutines int64  // at the end, when all is quiet
	Crowd      string // what has started most of them
	// At most, at any time: goroutines, files of the nodes that are open, and the bytes that lived on the heap, those of Kafka
	// and of this ledger with them; 0: unknown.
	MostGoroutines, Files, Memory int64
	MostCrowd                     string
	Nodes                         int64
	Brokers                       int64 // of Kafka
	Feed                          int64 // messages that the feed of a scheduler holds
	Loaded                        int64 // messages that its window holds
	Handed                        int64 // messages of one target that the publisher may have
	Page                          int64 // messages that one read of storage is to find
}

// A Bound is what something may cost by what it was for.
type Bound struct {
	What          string
	Spent, Budget int64
}

// Bounds returns what was spent, and two to three times what is needed for it. So what they find is
// work that repeats itself without end, or grows with a product: of messages and targets, say.
func (l *Ledger) Bounds() []Bound {
	c := l.Costs
	messages, copies, terms := int64(len(l.Records)), int64(len(l.Deliveries)), int64(len(l.Terms))
	upheavals := terms + int64(len(l.Faults))
	led := l.seconds(l.terms())
	// A target that is bad, or takes less than it is sent, is tried each few seconds, and its Kafka broker is asked beside it
	// whether it answers others. One that does not exist is asked for ever less often, with all others that do not.
	tried, asked := l.seconds(l.faultsOf("slow", "hush", "stall", "forbid", "error", "unread", "limit")), l.seconds(l.faultsOf("missing"))
	// Without an answer clients try again some twenty times a second.
	apart := l.seconds(l.faultsOf("cut", "silence", "isolate", "freeze"))
	looks := led*int64(time.Second)*4/int64(max(l.Discovery, time.Second)) + led/2
	dials := 60 + 50*terms + 5*upheavals + 6*c.Parked + tried + 60*apart + led/600
	// A leader whose disk has no room asks the others at each look whether they would lead better. They look twice, each time
	// with a client of its own.
	dials += l.seconds(l.faultsOf("full-disk")) * int64(time.Second) / int64(max(l.Discovery, 10*time.Second)) * 2 * c.Nodes * (1 + c.Brokers)
	if c.Brokers > 1 {
		// An idle client asks any broker for metadata each five minutes, and mostly another one than
		// before, whose connection has been idle for too long.
		dials += led / 25
	}
	// A feed overflows when it has got more than it holds, and what is in the window then is read again.
	overflows := messages / (c.Feed + 1)
	// A target that has as many as it may have is read on when it has got rid of a quarter of them, past what
	// others wait for. While it comes back from being parked, each time is a step that a claim names.
	stops := copies / (c.Handed/4 + 1)
	names := int64(len(l.targets()))
	// Each read of few messages that lie on disk looks, in vain, at up to eight times as many in memory.
	ahead := min(8, messages/max(c.Page, 1))
	// Of dead letters that their topic refuses a few in turn are tried each 5 s, each alone. After a refusal it is looked
	// whether the topic takes more now.
	refused := l.seconds(l.faultsIn(l.DeadLetters, "limit")) / 5 * min(l.condemnations(), 65)
	return []Bound{
		{"connections to Kafka", c.Dials, dials},
		{"requests for topics and offsets", c.Lookups, 200 + looks*c.Brokers + 40*upheavals + 20*names + 6*c.Parked + 2*tried + refused + asked/5 + 20*apart},
		{"requests that write", c.Produces, 100 + copies + copies/2 + led*c.Brokers/25 + tried + refused + 4*c.Parked + 20*upheavals},
		{"messages looked at in storage", c.Scanned, 1000 + 6*messages + messages*terms + c.CatchUps*(1+ahead) + overflows*min(messages, c.Loaded) + stops*messages/2},
		{"claims", c.Claims, 100 + 2*messages + copies + 4*c.Parked + 10*upheavals},
		{"bytes of claims", c.ClaimBytes, 1000 + 60*c.Claims + 120*c.Parked + 60*stops},
		{"goroutines", c.Goroutines, 100 + 60*c.Nodes + 2*names + 20*c.Brokers},
		{"open files", c.Files, 20 + 40*c.Nodes},
		{"goroutines at some time", c.MostGoroutines, 200 + 120*c.Nodes + 2*names + 40*c.Brokers},
		{"bytes of memory", c.Memory, 48<<20 + c.Nodes*(12<<20) + messages*(4<<10) + names*(8<<10) + c.Dials*(2<<10)}, // the fake Kafka keeps something of each connection
	}
}

// checkCosts holds what was spent against what it was for.
func (j *judge) checkCosts() {
	for _, b := range j.Bounds() {
		if b.Spent > b.Budget {
			switch b.What {
			case "goroutines":
				b.What += ", most of them started by " + j.Costs.Crowd
			case "goroutines at some time":
				b.What += ", most of them started by " + j.Costs.MostCrowd
			}
			j.problem("bounds", "%d %s, and %d at most for %d messages, %d copies, %d targets, %d faults and %d terms in %v",
				b.Spent, b.What, b.Budget, len(j.Records), len(j.Deliveries), len(j.targets()), len(j.Faults), len(j.Terms), j.End.Sub(j.Begin))
		}
	}
}

func (l *Ledger) targets() map[string]bool {
	names := make(map[string]bool)
	for _, r := range l.Records {
		names[r.Target] = true
	}
	return names
}

// terms returns when somebody led.
func (l *Ledger) terms() []span {
	var spans []span
	for _, t := range l.Terms {
		spans = append(spans, span{t.Begin, l.orEnd(t.Over)})
	}
	return spans
}

// condemnations returns how many dead letters there are.
func (l *Ledger) condemnations() (n int64) {
	for i := range l.Deliveries {
		if l.Deliveries[i].Topic == l.DeadLetters {
			n++
		}
	}
	return n
}

// faultsOf returns when there were faults of these kinds.
func (l *Ledger) faultsOf(kinds ...string) []span { return l.faultsIn("", kinds...) }

// faultsIn is faultsOf, of a topic; "": of any.
func (l *Ledger) faultsIn(topic string, kinds ...string) []span {
	var spans []span
	for _, f := range l.Faults {
		if topic != "" && f.Topic != topic {
			continue
		}
		to := l.orEnd(f.Until)
		if slices.Contains(kinds, f.Kind) && to.After(f.From) {
			spans = append(spans, span{f.From, to})
		}
	}
	return spans
}

// seconds returns how long the spans are, together.
func (l *Ledger) seconds(spans []span) int64 {
	var sum time.Duration
	for _, s := range merged(spans) {
		sum += s.to.Sub(s.from)
	}
	return int64(sum / time.Second)
}
