package deliver

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
)

const (
	// mostFlying bounds the records of one target that Kafka has not answered, unless it answers
	// more than these in leastUnacked (pace). A crash repeats those of them that Kafka had
	// written, besides what acks bounds.
	mostFlying = 2048
	// slowAfter is how long a record may be without an answer before no other follows
	// it. A sink that gives a record up by itself, after twice this, fails what it
	// holds behind it as well; one sent at that very moment would overtake them.
	slowAfter = time.Second
	// A read takes so many bytes of stored bodies and so many messages at most, and one message at least.
	chunkBytes = 1 << 20
	mostChunk  = 64
	// Messages in memory, in bytes: of one lane, as many small ones as it is handed, and of all together. Beyond these each
	// lane may still have its share of what all have together, so that no target starves
	// another: mostShare while lanes are few, leastShare however many there are.
	mostLoad    = 10 << 20
	mostAllLoad = 64 << 20
	mostShare   = 256 << 10
	leastShare  = 16 << 10
	// recordLoad is what a message in memory costs besides its stored body: itself, usualHeaders,
	// the record that is made of it and what a Kafka client keeps with that. headerLoad is what each
	// further header costs, in the message and in the record.
	recordLoad   = 1 << 10
	usualHeaders = 8
	headerLoad   = 80
)

// An outgoing is a message with its payload, on its way to Kafka.
type outgoing struct {
	ref        storage.Ref
	message    message.Message
	size       int   // bytes of the stored body
	deadLetter bool  // it goes to the dead-letter topic because something was wrong with it
	err        error // of the last try
	sent       time.Time
	answered   bool      // the last try has its outcome
	unplaced   time.Time // when its partition was not there
	missed     time.Time // when Kafka first answered so to a question put after that
	nowhere    bool      // Kafka has answered so for long enough
}

// An outcome is Kafka's answer for one record.
type outcome struct {
	o       *outgoing
	receipt Receipt
	err     error
}

// reserve takes from what all lanes may hold what a read may bring, in bytes. It returns 0 when there is nothing to read or
// no room for it. Many lanes read at the same moment: what each only found to be free, all of them would take.
func (l *lane) reserve() int {
	if len(l.waiting) == 0 {
		return 0
	}
	if l.loaded < mostLoad {
		if l.p.loaded.Add(chunkBytes) <= mostAllLoad {
			return chunkBytes
		}
		l.p.loaded.Add(-chunkBytes)
	}
	own := max(l.p.share()-l.loaded, 0)
	l.p.loaded.Add(int64(own))
	return own
}

// share returns how many bytes each lane may hold whatever the others do.
func (p *Publisher) share() int {
	return min(max(mostAllLoad/int(max(p.lanes.Load(), 1)), leastShare), mostShare)
}

// read loads the payloads of the next messages, which take the place of so many bytes that are reserved. One that is
// missing is dead, and the scheduler knows that from the log. One that cannot be decoded stays where it is,
// and the others go on.
func (l *lane) read(reserved int) error {
	defer l.p.loaded.Add(int64(-reserved))
	refs := l.waiting[:ascending(l.waiting, mostChunk)]
	buffer := l.p.buffers.Get().(*[]storage.Entry)
	entries, read, err := l.p.cfg.Store.ReadWithin(reserved, refs, (*buffer)[:0])
	defer func() {
		*buffer = entries[:cap(entries)]
		clear(*buffer) // bodies
		l.p.buffers.Put(buffer)
	}()
	if err != nil {
		return fmt.Errorf("read %d messages for topic %q: %w", len(refs), l.target, err)
	}
	l.waiting = l.waiting[read:]
	loaded := 0
	outgoings := make([]outgoing, len(entries)) // they are sent together, and let go of together
	for i := range entries {
		entry := &entries[i]
		message, err := message.FromEntry(entry)
		if err != nil {
			l.p.leaveUnreadable(entry, err)
			continue
		}
		o := &outgoings[i]
		*o = outgoing{ref: entry.Ref(), message: message, size: len(entry.Body), deadLetter: message.DeadLetter}
		l.letters.takes = l.letters.takes || o.deadLetter
		l.ready = append(l.ready, o)
		loaded += o.load()
	}
	l.load(loaded)
	return nil
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
func (o *outgoing) load() int {
	return o.size + recordLoad + headerLoad*max(len(o.message.Headers)-usualHeaders, 0)
}

// takeReady takes out the first message that is ready.
func (l *lane) takeReady() *outgoing {
	o := l.ready[0]
	l.ready[0] = nil // payload
	l.ready = l.ready[1:]
	return o
}

// flights are the records that were sent and have no outcome yet.
type flights struct {
	records  []*outgoing // in the order they were sent, answered ones in between
	flying   int
	answered time.Time // when the last outcome came
}

// oldest returns when the record was sent that has waited longest for its
// answer. Something must be flying.
func (f *flights) oldest() time.Time {
	for f.records[0].answered {
		f.records = f.records[1:]
	}
	return f.records[0].sent
}

// unansweredSince returns since when nothing was answered while something was flying, which must be so
// now. A record waits in the sink while Kafka has others of its target, however long each of these takes.
// That is not silence: who took it for that would send again what is written a moment later, and the more
// of it the more waits.
func (f *flights) unansweredSince() time.Time {
	if sent := f.oldest(); f.answered.Before(sent) {
		return sent
	}
	return f.answered
}

// isSilent reports whether something is flying and nothing of the target was answered for so long that it is given up.
func (f *flights) isSilent() bool {
	return f.flying > 0 && time.Since(f.unansweredSince()) >= stallAfter
}

func (f *flights) launch(o *outgoing) {
	f.records = append(f.records, o)
	f.flying++
}

// land notes that so many have their outcome.
func (f *flights) land(n int, now time.Time) {
	f.flying -= n
	if n > 0 {
		f.answered = now
	}
	if f.flying == 0 {
		clear(f.records) // payloads
		f.records = f.records[:0]
	}
}

// A pace is how many records of a target Kafka answers in leastUnacked.
type pace struct {
	since    time.Time
	answered int // since then
}

// answer counts records, and returns the pace whenever it has counted for long enough, else 0.
func (p *pace) answer(records int, now time.Time) int {
	p.answered += records
	took := now.Sub(p.since)
	if took < leastUnacked {
		return 0
	}
	n := int(int64(p.answered) * int64(leastUnacked) / int64(took))
	*p = pace{since: now}
	return n
}

// widen lets as many records fly as Kafka has answered lately in the time that a kill may repeat: where it
// answers a busy target at once, 2,048 on their way would bound that. Where an answer takes longer than that time,
// what is answered in it is less than what flies, and nothing is widened.
func (l *lane) widen(answered int) {
	if n := l.pace.answer(answered, time.Now()); n > 0 {
		l.health.widest = max(n, l.p.limits.Flying)
	}
}

// mayLaunch reports whether another record may be sent now. None follows a slow one:
// invariant 4.
func (l *lane) mayLaunch(now time.Time) bool {
	if l.p.acks.isBehind(now) {
		return false
	}
	f := &l.flights
	return f.flying == 0 || f.flying < l.health.window && now.Sub(f.oldest()) < slowAfter
}

func (l *lane) launch(o *outgoing, partition int32, now time.Time) {
	if o.err != nil {
		l.p.cfg.Count.Retried(1)
	}
	o.sent, o.answered = now, false
	l.flights.launch(o)
	outcomes := l.outcomes
	l.p.cfg.Sink.Send(l.delivery(o, partition), func(receipt Receipt, err error) {
		outcomes.Put(outcome{o, receipt, err})
	})
	clear(l.headers) // values
}

// delivery returns the record as it goes out. Its headers are good until the next call.
func (l *lane) delivery(o *outgoing, partition int32) Delivery {
	m := &o.message
	if o.deadLetter { // as the record came, so that a corrected one can be produced from it
		return Delivery{Topic: l.target, Partition: partition, Key: m.Key, Value: m.Value, Headers: m.Headers, Series: l.series}
	}
	l.headers = m.AppendDeliveredHeaders(l.headers[:0], l.p.cfg.ClusterID, o.ref.Seq)
	return Delivery{Topic: l.target, Partition: partition, Key: m.DeliveredKey(), Value: m.Value, Headers: l.headers, Series: l.series}
}

// takeOutcomes hears Kafka's answers: what is written is acknowledged, the rest, which is
// returned, has failed.
func (l *lane) takeOutcomes() (failed []*outgoing) {
	l.takenOutcomes = l.outcomes.Take(l.takenOutcomes)
	var written []uint64
	var told []raftfsm.Ended
	now := l.p.now()
	for _, answer := range l.takenOutcomes {
		o := answer.o
		o.err, o.answered = answer.err, true
		if o.err != nil {
			l.layout.heard = PartitionCount{}
			l.health.absent.hear(o.err, time.Now())
			failed = append(failed, o)
			continue
		}
		written = append(written, o.ref.Seq)
		if l.p.isTold(o) {
			told = append(told, o.end(outcomes.Outcome{Kind: outcomes.Delivered, At: now, Target: l.target, Partition: answer.receipt.Partition, Offset: answer.receipt.Offset}))
		}
		l.unload(o)
		switch {
		case !o.deadLetter:
			l.p.cfg.Count.Delivered(max(now-o.ref.Due-o.message.Overdue, 0)) // clocks of two leaders differ
		case o.message.ValueDropped:
			l.p.cfg.Count.ValueDropped()
		}
		o.message = message.Message{} // flights may keep it for a while
		l.health.succeed(o.ref)
		l.writtenAside(o.ref.Seq)
		l.relieve()
	}
	l.flights.land(len(l.takenOutcomes), time.Now())
	l.widen(len(written))
	clear(l.takenOutcomes) // payloads
	l.p.acks.put(written, told...)
	return failed
}

// unreadable is the messages of a term whose stored bodies cannot be decoded: damaged,
// or written by a newer version. Such a message stays in the schedule as it is. Its lane
// lets go of it; for the scheduler it is with the publisher until the term ends, so that
// no mark passes it and the next term, perhaps of another version, reads it again. Like
// all that is handed over these count for schedule.MostHanded.
type unreadable struct {
	mu       sync.Mutex
	messages int
	warned   time.Time
}

// leaveUnreadable tells the world of a message that is left where it is: invariant 9.
func (p *Publisher) leaveUnreadable(entry *storage.Entry, cause error) {
	u := &p.unreadable
	u.mu.Lock()
	defer u.mu.Unlock()
	u.messages++
	p.cfg.Count.Unreadable()
	p.cfg.Report.SetProblem("schedule", fmt.Sprintf("messages cannot be read and stay as they are, %d of them, one for topic %q: %v: "+
		"run the newest version on all nodes; if that is so, stop this one, since the copy of another may be sound", u.messages, entry.Target, cause))
	if time.Since(u.warned) < time.Second {
		return // a line for each of thousands would help nobody
	}
	u.warned = time.Now()
	p.log.Error("message cannot be read and stays in the schedule", "seq", entry.Seq, "due", time.UnixMilli(entry.Due).UTC(),
		"target", entry.Target, "bytes", len(entry.Body), "so_far", u.messages, "error", cause)
}

const (
	// countMaxAge bounds how long partitions that are added to a target go unused.
	countMaxAge = 5 * time.Second
	// lookAgain is the time between two looks for a partition that is not there.
	lookAgain = time.Second
	// lookedFor is how long a partition must not have been there, by two answers at
	// least, before a message that names it is condemned. A Kafka broker that was frozen
	// answers from the past, and a new partition takes a moment to be known everywhere.
	lookedFor = 3 * time.Second
)

// A countTold is how many partitions there are, and when the answer came.
type countTold struct {
	PartitionCount
	came time.Time
}

// A layout is what a lane knows of the partitions of its target.
type layout struct {
	heard   PartitionCount // as Kafka last said; Count is 0 if that is not known, or something has failed since
	came    time.Time      // when that came from Kafka, however late the lane has heard it
	placed  int32          // the count that flying records were placed by
	asking  bool           // the prober will answer
	askedAt time.Time      // when it was last asked
	askNext time.Time      // when it is asked next, without waiting for that
}

// partitions returns how many partitions the target has, as Kafka last said. It never
// waits: an old count is good while a new one is asked for. Without a count, because
// something of the target has failed, both results are zero, and the answer will wake the
// lane. If the answer was that the target is not there, or there was none, it is an error,
// once.
func (l *lane) partitions() (int32, error) {
	if err := l.health.absent.recent(time.Now()); err != nil {
		return 0, err
	}
	if err := l.layout.heard.Err; err != nil {
		l.layout.heard = PartitionCount{}
		return 0, err
	}
	if l.layout.heard.Count == 0 || time.Now().After(l.layout.askNext) {
		l.ask()
	}
	return l.layout.heard.Count, nil
}

func (l *lane) ask() {
	if !l.layout.asking {
		l.layout.asking, l.layout.askedAt = true, time.Now()
		l.p.prober.ask(l.target)
	}
}

// takeAnswers hears how many partitions there are. An answer that says nothing of the
// kind counts only when there is none yet, since what is sent will fail if it is true, or when nothing will be sent:
// all that there is has no partition. That is ready again then, so that the answer is the target's failure.
func (l *lane) takeAnswers() {
	for _, told := range l.answers.Take(nil) {
		heard := told.PartitionCount
		l.layout.asking = false
		l.health.absent.hear(heard.Err, time.Now())
		sendsNothing := len(l.unplaced) > 0 && len(l.ready) == 0 && l.flights.flying == 0
		if heard.Err != nil && l.layout.heard.Count > 0 && !sendsNothing {
			l.layout.askNext = time.Now().Add(lookAgain)
			continue
		}
		l.layout.heard, l.layout.came, l.layout.askNext = heard, told.came, time.Now().Add(countMaxAge)
		if heard.Err == nil {
			l.place()
		} else {
			l.makeReady(l.unplaced)
			l.unplaced = nil
		}
	}
}

// isFresh reports whether Kafka has answered lately, however long that took.
func (l *layout) isFresh() bool { return time.Since(l.came) < lookAgain }

// setUnplaced keeps a message whose partition is not there out of the way of the others.
// None of these is for the same partition.
func (l *lane) setUnplaced(o *outgoing) {
	o.unplaced, o.missed = time.Now(), time.Time{}
	l.unplaced = append(l.unplaced, o)
}

// look asks for the partitions that are not there, when it is time.
func (l *lane) look() {
	if len(l.unplaced) > 0 && time.Since(l.layout.askedAt) >= lookAgain {
		l.ask()
	}
}

// place makes unplaced messages ready again, in their order: all of them if the target has
// another number of partitions now, else those whose partition was looked for long enough,
// which are condemned. An answer counts for a message only if the question was put after the
// message was found to be unplaced.
func (l *lane) place() {
	changed := l.layout.heard.Count != l.layout.placed
	var back, rest []*outgoing
	for _, o := range l.unplaced {
		switch {
		case changed:
			back = append(back, o)
			continue
		case l.layout.askedAt.Before(o.unplaced):
		case o.missed.IsZero():
			o.missed = time.Now()
		case time.Since(o.missed) >= lookedFor:
			o.nowhere = true
			back = append(back, o)
			continue
		}
		rest = append(rest, o)
	}
	l.unplaced = rest
	l.makeReady(back)
}

// makeReady makes messages ready again that were, in their order.
func (l *lane) makeReady(back []*outgoing) {
	if len(back) > 0 {
		l.ready = append(back, l.ready...)
		slices.SortFunc(l.ready, func(a, b *outgoing) int { return a.ref.Compare(b.ref) })
	}
}
