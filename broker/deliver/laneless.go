package deliver

import (
	"errors"
	"sync"
	"time"

	"github.com/carillonmq/carillon/broker/schedule"
	"github.com/carillonmq/carillon/storage"
)

const (
	// The wait between probes of a parked target, doubling while they fail and while
	// the target, fed again, fails at once.
	leastProbe = 100 * time.Millisecond
	mostProbe  = 5 * time.Second
	// mostSilence is the longest wait while Kafka does not say how many partitions there are. When it
	// answers again all targets wait for this, and asking for a thousand of them is one request.
	mostSilence = time.Second
	// A target that is absent for long is asked for less often: after a twelfth of that
	// time, and each minute at least. mostAbsenceGap must be longer.
	absentShare     = 12
	mostAbsentProbe = time.Minute
	// A target of which no try was answered for longer than an outage of Kafka mostly lasts is tried
	// less often: after a twelfth of the time beyond that, and each minute at least.
	mostOutage      = 10 * time.Minute
	silentShare     = 12
	mostSilentPause = time.Minute
	// trialGap is the time between the trials of two absent targets, to which messages
	// for each are read: when a hundred thousand of them have been missing for long
	// enough, some are condemned and the others wait.
	trialGap = 2 * time.Millisecond
	// trialPatience is how long an absent or silent target on trial is kept in mind without a message:
	// the scheduler may have much to read for others first, and does not say when nothing waits.
	trialPatience = 15 * time.Minute
)

// A laneless is the entry of a target without a lane. Its standing says what it waits for.
// Confirm is the scheduler's call (schedule.Publisher):
//
//	standing  event                                        next
//	--------  -------------------------------------------  ---------------------------
//	unseen    Kafka says that it exists                    its lane
//	          anything else, or nothing, for 2 s           parked: all is given back
//	          Confirm comes, and nothing waits             parked
//	parked    a message comes                              parked: it is given back
//	          all verdicts are answered, and Kafka says
//	            that it exists                             on trial
//	            that it is missing, for too long or as     on trial, in its turn
//	            one too many
//	on trial  a message comes                              its lane, which is on trial
//	          Confirm comes                                parked
//	          nothing comes for 30 s; if it was absent
//	            or silent, for 15 min                      forgotten
//	its lane  it fails for 2 s; on trial: once             parked
//	          it has nothing to do for 30 s                forgotten
//
// There may be a hundred thousand of them: times are moments, and what few have is a pointer.
type laneless struct {
	name     string
	standing standing
	absent   struct{ since, heard moment } // an absence without its last error
	letters  *letters                      // nil: it takes no dead letters
	wake     moment
	index    int32 // in wakes; -1: not there
	asked    bool  // there will be an answer; otherwise it is in wakes
}

// A moment is a time.Time in a third of its memory: nanoseconds of the monotonic clock since
// Publisher.began. 0 is the zero time.
type moment int64

func (p *Publisher) moment(t time.Time) moment {
	if t.IsZero() {
		return 0
	}
	return moment(t.Sub(p.began))
}

func (p *Publisher) time(m moment) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return p.began.Add(time.Duration(m))
}

func (t *laneless) absence(p *Publisher) absence {
	return absence{since: p.time(t.absent.since), heard: p.time(t.absent.heard)}
}

func (t *laneless) setAbsence(p *Publisher, a absence) {
	t.absent.since, t.absent.heard = p.moment(a.since), p.moment(a.heard)
}

// A standing is how a target without a lane stands. Its value holds what is known then only.
type standing interface {
	// take takes orders in from the front, and returns those that are left for the next standing.
	take(d *dispatcher, t *laneless, orders []order) []order
	// hear decides by what Kafka has answered about the target.
	hear(d *dispatcher, t *laneless, heard PartitionCount)
	// wake does what it is time for.
	wake(d *dispatcher, t *laneless)
}

// unseen is a target that Kafka is asked about: it is new, or nothing was due for it for a while. What was handed over waits.
type unseen struct {
	waiting []storage.Ref // empty only before the first order
	since   time.Time     // when the first order came
	backoff time.Duration // wait before it is asked again
}

func (s *unseen) take(d *dispatcher, t *laneless, orders []order) []order {
	for i, o := range orders {
		switch {
		case !o.confirm:
			s.waiting = append(s.waiting, o.Ref)
		case len(s.waiting) > 0: // a target with messages to send is not parked, and the scheduler must hear that
			d.p.cfg.Verdicts.Put(schedule.Verdict{Target: t.name})
		default:
			d.parkAsConfirmed(t, 0)
			return orders[i+1:]
		}
	}
	return nil
}

func (s *unseen) hear(d *dispatcher, t *laneless, heard PartitionCount) {
	switch {
	case heard.Err == nil:
		d.begin(t, heard, nil)
	case time.Since(s.since) < parkAfter:
		s.backoff = min(max(2*s.backoff, leastBackoff), mostBackoff)
		d.wakeAfter(t, s.backoff)
	default:
		s.park(d, t, heard.Err)
	}
}

func (s *unseen) wake(d *dispatcher, t *laneless) {
	d.probe(t)
}

// park gives everything back of a target that Kafka does not say to exist: invariant 3.
func (s *unseen) park(d *dispatcher, t *laneless, cause error) {
	if time.Since(d.warned) >= time.Second { // a line for each of a million names would help nobody
		d.p.log.Warn("target fails: parking it", "target", t.name, "error", cause)
		d.warned = time.Now()
	}
	d.p.alarm(t.letters, cause)
	next := &parked{probeAfter: leastProbe, due: s.waiting[0].Due}
	t.standing = next
	d.p.cfg.Count.Parked(1)
	next.giveBack(d, t, s.waiting)
	d.wakeAfter(t, next.probeAfter)
}

// parked is a target that cannot be written to: everything was given back to the scheduler, which
// feeds it again when a verdict says so (resume).
type parked struct {
	// unanswered counts the verdicts of being parked to which the scheduler has not answered
	// with Confirm. The target is fed again only when all are answered. What was handed
	// over before the scheduler knew has come back by then, and nobody overtakes it:
	// invariant 5.
	unanswered int32
	trial      bool          // it goes on trial when it wakes, though it is absent
	probeAfter time.Duration // wait before the next probe
	due        int64         // of the message that is first in line
	had        *hadLane      // nil: it had none, as most of a hundred thousand names
}

// A hadLane is what is known of a parked target only if its lane has parked it.
type hadLane struct {
	timeout     time.Duration // of firstWaiting
	silentSince moment        // of health
	afterTrial  int32         // of health
	counted     *missingCount // as missing, for a delay topic; nil: it is not
}

// first is what is known of the message that is first in line. What no lane has read may wait as briefly as any.
func (s *parked) first(p *Publisher) firstWaiting {
	if s.had == nil {
		return firstWaiting{due: s.due, timeout: p.cfg.LeastMissingTimeout}
	}
	return firstWaiting{due: s.due, timeout: s.had.timeout}
}

// newParked returns what is kept of the target of a lane that ends.
func newParked(l *lane, standing parked) *laneless {
	t := &laneless{name: l.target, standing: &standing, index: -1, letters: l.letters.kept()}
	t.setAbsence(l.p, l.health.absent)
	return t
}

// parkAsConfirmed parks a target that nothing waits for here, and that the scheduler knows to be
// parked from the claim of an earlier term.
func (d *dispatcher) parkAsConfirmed(t *laneless, probeAfter time.Duration) {
	t.standing = &parked{probeAfter: probeAfter}
	d.p.cfg.Count.Parked(1)
	if !t.asked {
		d.wakeAfter(t, 0)
	}
}

func (s *parked) take(d *dispatcher, t *laneless, orders []order) []order {
	var back []storage.Ref
	for _, o := range orders {
		switch {
		case !o.confirm:
			back = append(back, o.Ref) // handed over before the scheduler knew that the target is parked
		case s.unanswered > 0:
			s.unanswered--
		}
	}
	if len(back) > 0 {
		s.giveBack(d, t, back)
	}
	return nil
}

func (s *parked) giveBack(d *dispatcher, t *laneless, refs []storage.Ref) {
	s.unanswered++
	d.p.cfg.Verdicts.Put(schedule.Verdict{Target: t.name, Parked: true, Returned: refs})
}

func (s *parked) hear(d *dispatcher, t *laneless, heard PartitionCount) {
	if s.unanswered == 0 && heard.Err == nil {
		s.resume(d, t)
		return
	}
	if s.unanswered == 0 && s.mayTry(d, t, heard.Err) && s.planTrial(d, t) {
		return
	}
	if heard.Err != nil {
		d.p.alarm(t.letters, heard.Err)
	}
	d.wakeAfter(t, s.nextProbe(d, t))
}

// mayTry reports whether the target goes on trial though it is absent: its first message has
// waited long enough to be dead-lettered, or it may be one missing target too many. Then its
// first message is read, and its delay topic is known.
func (s *parked) mayTry(d *dispatcher, t *laneless, cause error) bool {
	absent := t.absence(d.p)
	first := s.first(d.p)
	if isAbsent(cause) && first.isOverdue(&absent, d.p.now()) {
		return true
	}
	most, counted := d.p.cfg.LeastMostMissing, s.had != nil && s.had.counted != nil
	return most > 0 && len(d.laneless) > most && !counted && first.timeout != forever && t.letters == nil &&
		errors.Is(cause, ErrTargetMissing) && absent.lasted(parkAfter)
}

// planTrial has an absent target tried in its turn, and reports whether that is soon.
func (s *parked) planTrial(d *dispatcher, t *laneless) bool {
	now := time.Now()
	if d.trials.Before(now) {
		d.trials = now
	}
	wait := d.trials.Sub(now)
	if wait > mostAbsentProbe/2 {
		return false // Kafka's answer would be old
	}
	s.trial = true
	d.wakeAfter(t, wait)
	d.trials = d.trials.Add(trialGap)
	return true
}

func (s *parked) wake(d *dispatcher, t *laneless) {
	trial := s.trial
	s.trial = false
	switch {
	case s.unanswered > 0:
		d.wakeAfter(t, s.nextProbe(d, t))
	case trial:
		s.resume(d, t)
	default:
		d.probe(t)
	}
}

// pause returns how long to wait for the first look after a lane has parked the target. What its trial
// took is a part of the wait. Where Kafka does not answer that is seconds, and while all targets
// pause, as they do when all were parked at once, nobody would notice that it answers again.
//
// One whose trials were not answered for long waits for longer: Kafka says that the target is there
// each time, and may write each record later.
func (s *parked) pause(trial, silent time.Duration) time.Duration {
	return max(s.probeAfter-trial, min(s.probeAfter, leastProbe), min((silent-mostOutage)/silentShare, mostSilentPause))
}

// nextProbe returns how long to wait for the next look at the target. It comes in
// time for the end of what the first message may wait.
func (s *parked) nextProbe(d *dispatcher, t *laneless) time.Duration {
	s.probeAfter = min(max(2*s.probeAfter, leastProbe), mostProbe)
	switch {
	case t.absent.since == 0:
		return min(s.probeAfter, mostSilence)
	case t.letters != nil: // there are few of these, and somebody repairs them
		return s.probeAfter
	}
	lasted := time.Since(d.p.time(t.absent.since))
	wait := max(s.probeAfter, min(lasted/absentShare, mostAbsentProbe))
	first := s.first(d.p)
	overdue := time.Duration(first.due-d.p.now())*time.Millisecond + first.timeout
	if left := max(overdue, first.timeout-lasted); left > 0 && first.timeout != forever {
		wait = min(wait, left)
	}
	return wait
}

// resume has the target fed again, on trial.
func (s *parked) resume(d *dispatcher, t *laneless) {
	next := &onTrial{since: time.Now(), probeAfter: s.probeAfter}
	t.standing = next
	if had := s.had; had != nil {
		next.silentSince, next.afterTrial = had.silentSince, had.afterTrial
		if had.counted != nil {
			d.p.missing.release(had.counted)
		}
	}
	d.p.cfg.Count.Parked(-1)
	d.p.cfg.Verdicts.Put(schedule.Verdict{Target: t.name})
	d.wakeAfter(t, idleAfter)
}

// onTrial is a target that the scheduler may feed again. Its lane begins with the next message.
type onTrial struct {
	since       time.Time
	probeAfter  time.Duration // wait before the last probe
	silentSince moment        // of health
	afterTrial  int32         // of health; 0: all that may be
}

func (s *onTrial) take(d *dispatcher, t *laneless, orders []order) []order {
	if orders[0].confirm {
		d.parkAsConfirmed(t, s.probeAfter)
		return orders[1:]
	}
	d.begin(t, PartitionCount{}, orders)
	return nil
}

func (s *onTrial) hear(d *dispatcher, t *laneless, _ PartitionCount) { d.wakeAfter(t, idleAfter) }

func (s *onTrial) wake(d *dispatcher, t *laneless) {
	switch patient := time.Since(s.since) < trialPatience; {
	case patient && t.absent.since != 0:
		d.probe(t) // or it would have to be absent as long again
		return
	case patient && s.silentSince != 0:
		d.wakeAfter(t, idleAfter) // or all that waits for it would be sent at once
		return
	}
	t.letters.relieve() // it was not fed: nothing waits
	d.forget(t)
}

// missingNames counts, for each delay topic, the missing targets that its messages wait
// for. A target counts for the delay topic of the message that is first in line, while it
// is parked. It is used by many goroutines.
type missingNames struct {
	mu     sync.Mutex
	counts map[string]*missingCount
}

// A missingCount is how many targets count for one delay topic.
type missingCount struct {
	origin string
	names  int
}

// admit counts one more and returns the count that it is in, nil if there are that many already; 0: there is no bound.
func (m *missingNames) admit(origin string, most int) *missingCount {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts[origin]
	switch {
	case c == nil:
		c = &missingCount{origin: origin}
		m.counts[origin] = c
	case most > 0 && c.names >= most:
		return nil
	}
	c.names++
	return c
}

func (m *missingNames) release(c *missingCount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.names--; c.names == 0 {
		delete(m.counts, c.origin)
	}
}
