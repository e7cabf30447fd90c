package schedule

import (
	"math"
	"slices"
	"strings"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

// A heldTopic is a delay topic that the log holds: it is paused, or comes back.
//
// What came by it is withheld from read on: nobody reads it, nothing of it enters the window, and
// what the window has of it is dropped when it is ripe. That loses nothing, since the hold's mark
// covers all of it that is alive, whatever its targets are and whoever leads (storage).
//
// While it is paused read moves on as far as its hold goes, for a pause does not call back what was claimed:
// that goes out like any other. What the bounds of pauses stop is not claimed, and withheld before read, too.
//
// When it comes back, all that was held is read again, and read moves on in steps. For each the log is
// asked first: a claim raises the hold's Through to the end of a page, and what is due by then is read
// and handed over, or left to its target, which reads it again from there. Each claim releases twice as many pages
// as the one before, mostPages at most, until one target has enough: a page for each commit may be less than comes.
//
//	         mark                read        through      asked
//	----------|------------------|------------|------------|-----------------> now
//	          read like any other   claimed      on its way    held
//
// What is due now and left is little at some time. Then a claim lifts the hold, frontier and marks
// go back to read, and the topic is held no more.
//
// Whoever of its targets has enough stops, and goes on by itself when there is room, as ever. If a page
// is for that target alone the topic waits for it, and looks meanwhile whether something of others is due behind.
// Only if so it reads on, up to there: else it would only claim more. So of a topic with one target little is
// claimed that is not handed over, and of one with many a slow one does not delay the others.
type heldTopic struct {
	name    string
	paused  bool
	through int64       // of its hold, as committed
	mark    storage.Ref // of its hold: it is read again from here
	read    storage.Ref // the messages from here on are withheld
	asked   int64       // what the next claim is to raise through to
	done    bool        // the next claim is to lift the hold
	full    string      // the target that it waits for, "" if none
	lone    string      // the last such target: all that is before alone, as far as was looked, is for it or was read
	alone   storage.Ref
	passing storage.Ref // up to here it waits for nobody, since something of others is due

	pages  int         // how many the next claim is to release
	looked int         // of these, how many were looked at so far, to find where they end:
	ahead  storage.Ref // here. All before read is claimed meanwhile, and nothing is asked
}

// mostPages bounds what one claim releases of a topic: what is claimed can be neither cancelled nor paused.
const mostPages = 16

// topics are those that the log holds. It says how it stands with them (takeHeld): the scheduler only
// asks for steps. One rule, besides that of targets: read does not pass through.
type topics struct {
	held   []*heldTopic // in the order in which they were first held
	byName map[string]*heldTopic
	bounds pause.Bounds // as the log has them
	next   int          // of held, the one to bring back next

	names     []string // each topic of a message in the window, once, with some that were, and ""
	indexes   map[string]uint32
	free      []uint32 // places in names
	mostNames int      // before those that no message has are looked for
}

// fewNames is how many names are kept whether or not a message has them.
const fewNames = 1 << 10

func newTopics() topics {
	return topics{byName: make(map[string]*heldTopic), names: []string{""}, indexes: map[string]uint32{"": 0}, mostNames: fewNames}
}

// index returns the place of the topic in names, for a message that enters the window next. Delay topics are few, but
// over HTTP they are free text.
func (ts *topics) index(topic string, w *window) uint32 {
	if at, ok := ts.indexes[topic]; ok {
		return at
	}
	if len(ts.indexes) > ts.mostNames {
		ts.forgetNames(w)
	}
	topic = strings.Clone(topic) // it may be a part of all the names of a page
	var at uint32
	if last := len(ts.free) - 1; last >= 0 {
		at, ts.free = ts.free[last], ts.free[:last]
		ts.names[at] = topic
	} else {
		at = uint32(len(ts.names))
		ts.names = append(ts.names, topic)
	}
	ts.indexes[topic] = at
	return at
}

// forgetNames gives up those that no message of the window has. It costs a look at all of these, and is due again when as
// many names have come as were left.
func (ts *topics) forgetNames(w *window) {
	used := make([]bool, len(ts.names))
	used[0] = true
	for _, m := range w.kept {
		used[m.topic] = true
	}
	for topic, at := range ts.indexes {
		if !used[at] {
			delete(ts.indexes, topic)
			ts.names[at] = ""
			ts.free = append(ts.free, at)
		}
	}
	ts.mostNames = max(fewNames, 2*len(ts.indexes))
}

// get returns the topic, which is held from now on.
func (ts *topics) get(topic string) *heldTopic {
	h := &heldTopic{name: topic, paused: true, read: endOfSchedule, pages: 1}
	ts.byName[topic], ts.held = h, append(ts.held, h)
	return h
}

func (ts *topics) forget(h *heldTopic) {
	delete(ts.byName, h.name)
	ts.held = slices.DeleteFunc(ts.held, func(other *heldTopic) bool { return other == h })
}

// withholds reports whether a message that came by the topic waits because of that.
func (ts *topics) withholds(topic, target string, ref storage.Ref) bool {
	if len(ts.held) == 0 {
		return false
	}
	h, held := ts.byName[topic]
	return held && (!ref.Less(h.read) || ts.stops(h, target, ref))
}

// stops reports whether a message of the topic was not claimed when that was paused, though its hold
// goes as far.
func (ts *topics) stops(h *heldTopic, target string, ref storage.Ref) bool {
	return h.paused && ts.bounds.Covers(h.name, target).Stops(ref.Due, ref.Seq)
}

// lower notes that a message of the topic was accepted.
func (ts *topics) lower(topic string, ref storage.Ref) {
	if h, held := ts.byName[topic]; held {
		h.mark, h.alone = h.mark.Min(ref), h.alone.Min(ref)
	}
}

// lowerAll notes that the feed lost something.
func (ts *topics) lowerAll(ref storage.Ref) {
	for _, h := range ts.held {
		h.mark, h.alone = h.mark.Min(ref), h.alone.Min(ref)
	}
}

// pairings returns how many topics Apply looks at for a target that a claim names.
func (ts *topics) pairings() int {
	n := len(ts.held)
	for _, topic := range ts.bounds.Topics() {
		if _, held := ts.byName[topic]; !held {
			n++
		}
	}
	return n
}

// wantClaim reports whether a claim is to go out for any of them.
func (ts *topics) wantClaim() bool { return slices.ContainsFunc(ts.held, (*heldTopic).wantsClaim) }

func (h *heldTopic) wantsClaim() bool { return !h.paused && (h.done || h.asked > h.through) }

// ahead returns what the next claim is to cover for them: how far it must go at least, and
// the mark that must not pass what was withheld by the holds that it lifts.
func (ts *topics) ahead() (through int64, mark storage.Ref) {
	through, mark = math.MinInt64, endOfSchedule
	for _, h := range ts.held {
		switch {
		case !h.wantsClaim():
		case h.done:
			mark = mark.Min(h.read)
		default:
			through = max(through, h.asked)
		}
	}
	return through, mark
}

// change puts into a claim what it is to do to holds of topics.
func (ts *topics) change(claim *storage.ClaimChange, mayLift bool) {
	for _, h := range ts.held {
		switch {
		case !h.wantsClaim() || h.done && !mayLift:
		case h.done:
			claim.LiftTopics = append(claim.LiftTopics, h.name)
		default:
			claim.Topics = append(claim.Topics, storage.TopicHold{Topic: h.name, Through: h.asked, Mark: h.mark})
		}
	}
}

// takeHeld follows the log in what users pause and resume, and in the holds of topics.
func (s *Scheduler) takeHeld(all []raftfsm.Held) {
	for _, h := range all {
		if h.Kind == pause.Topic {
			s.holdTopic(h)
		} else {
			s.pauseTarget(h)
		}
	}
}

// pauseTarget parks a target that a user has paused, or no longer has it parked for that. The pause has
// set its hold already, unless it had one.
func (s *Scheduler) pauseTarget(h raftfsm.Held) {
	t, known := s.targets.byName[h.Name]
	switch {
	case h.Paused:
		t = s.targets.get(h.Name)
		t.paused, t.held, t.unsure = true, true, t.unsure || t.pending
		s.feedNoMore(t, h.Through)
		t.through = h.Through // less than a claim on its way says, which raises nothing that is paused
		s.targets.compareHold(t)
	case known && t.paused:
		t.paused = false
		s.healUnlessHeld(t)
	}
}

// inheritTopic takes over a delay topic that an earlier term held: nothing of it has been read.
func (s *Scheduler) inheritTopic(now raftfsm.Held) {
	s.holdTopic(now)
	h := s.topics.byName[now.Name]
	h.read = h.mark.Min(h.end())
}

// holdTopic takes over how it stands with a delay topic.
func (s *Scheduler) holdTopic(now raftfsm.Held) {
	h, held := s.topics.byName[now.Name]
	switch {
	case !now.Held && !held:
		return
	case !now.Held:
		s.topics.forget(h)
		s.letGo(h.read)
		return
	case !held:
		h = s.topics.get(now.Name) // all of it has been read like any other
	}
	wasPaused := h.paused
	h.paused, h.through, h.mark = now.Paused, now.Through, now.Mark
	switch {
	case h.paused:
		h.read, h.asked, h.done, h.full = h.read.Min(h.end()), h.through, false, ""
		h.pages, h.looked, h.lone, h.passing = 1, 0, "", storage.Ref{}
	case wasPaused:
		h.read, h.asked = h.mark.Min(h.end()), h.through
	}
}

// letGo has what is not withheld any more read again: all from ref on.
func (s *Scheduler) letGo(ref storage.Ref) {
	s.retreat(ref)
	s.targets.strayAll(ref)
}

// end is after all that is claimed of the topic.
func (h *heldTopic) end() storage.Ref {
	if h.through == math.MaxInt64 {
		return endOfSchedule
	}
	return storage.Ref{Due: h.through + 1}
}

// canGoOn reports whether there is something to read of the topic: it comes back and no claim for it is to
// come, or it is paused and some of it is claimed; and it waits for no target, or may find something due for others.
func (s *Scheduler) canGoOn(h *heldTopic) bool {
	if h.wantsClaim() || h.paused && h.read == h.end() {
		return false
	}
	return !s.waitsForOne(h) || s.mayLookBehind(h)
}

// lookEvery is how many milliseconds of what comes due are looked at together for something of others.
const lookEvery = 100

// mayLookBehind reports whether something of others may be due that was not looked at.
func (s *Scheduler) mayLookBehind(h *heldTopic) bool {
	end := s.dueOf(h)
	if !h.paused {
		end.Due -= lookEvery
	}
	return h.alone.Less(end)
}

// waitsForOne reports whether the topic waits for a target, which flows and has no room.
func (s *Scheduler) waitsForOne(h *heldTopic) bool {
	t, known := s.targets.byName[h.full]
	return known && !t.hasOwnMark() && !s.hasRoomAgain(t)
}

// dueOf is after all of the topic that is due and may be released.
func (s *Scheduler) dueOf(h *heldTopic) storage.Ref {
	due := storage.Ref{Due: s.now() + 1}
	if h.paused {
		due = due.Min(h.end())
	}
	return due
}

// bringBack reads one page of a topic that comes back, and reports whether it did. Like the sweep
// it runs when fire has nothing more to hand over by limit.
func (s *Scheduler) bringBack(limit int64) (read bool, err error) {
	for range s.topics.held {
		s.topics.next++
		if h := s.topics.held[s.topics.next%len(s.topics.held)]; s.canGoOn(h) {
			if s.waitsForOne(h) {
				return true, s.lookBehind(h)
			}
			return true, s.bringBackTopic(h, limit)
		}
	}
	return false, nil
}

// lookBehind looks a page further for something due behind what is for the target alone that the topic waits for.
func (s *Scheduler) lookBehind(h *heldTopic) error {
	ofOthers := func(at storage.Ref, topic, target string) bool {
		return topic == h.name && target != h.full && !s.topics.stops(h, target, at)
	}
	end := s.dueOf(h)
	items, next, done, err := s.cfg.Store.Scan(h.alone, end, s.limits.Page, ofOthers, s.items[:0])
	if err != nil {
		return err
	}
	s.items = items
	switch {
	case len(items) > 0:
		h.alone = items[0].Ref
		h.passing, h.full = items[0].Ref, ""
	case done:
		h.alone = end
	default:
		h.alone = next
	}
	return nil
}

func (s *Scheduler) bringBackTopic(h *heldTopic, limit int64) error {
	ofTopic := func(at storage.Ref, topic, target string) bool {
		return topic == h.name && !s.topics.stops(h, target, at)
	}
	from := h.read
	if h.looked > 0 {
		from = h.ahead
	}
	items, next, done, err := s.cfg.Store.Scan(from, storage.Ref{}, s.limits.Page, ofTopic, s.items[:0])
	if err != nil {
		return err
	}
	s.items = items
	if done {
		next = endOfSchedule
	}
	claimed, _ := slices.BinarySearchFunc(items, h.end(), func(item storage.Item, end storage.Ref) int { return item.Compare(end) })
	taken, err := s.takeBack(h, items[:claimed], limit)
	if err != nil {
		return err
	}
	if taken < claimed {
		h.read = items[taken].Ref
		return nil
	}
	h.read = next.Min(h.end())
	if h.read == h.end() && !h.paused {
		s.askFor(h, items[claimed:], next)
	}
	return nil
}

// askFor has the next claim release some pages more of the topic, or lift its hold: when no more than these
// are due by now, however long ago. Were it lifted only when all up to now is read, a topic would
// never come back whose claims take longer than what is due comes. beyond are the next messages, and
// all that is there of the topic before next. It takes as many passes as pages to see where these end.
func (s *Scheduler) askFor(h *heldTopic, beyond []storage.Item, next storage.Ref) {
	step, now := next.Due, s.now()
	if len(beyond) > 0 {
		step = beyond[len(beyond)-1].Due
	}
	if step >= now {
		h.done, h.looked = true, 0
		return
	}
	if h.looked++; h.looked < h.pages && (h.looked+1)*s.limits.Page <= s.roomFor(beyond) {
		h.ahead = next
		return
	}
	h.asked, h.looked = max(h.through+1, step), 0
	h.pages = min(2*h.pages, mostPages)
}

// waitFor has the topic wait for the target of a message, which is read again.
func (h *heldTopic) waitFor(item storage.Item) {
	if h.lone != item.Target {
		h.lone, h.alone = strings.Clone(item.Target), item.Ref // it may be a part of all the names of a page
	}
	if h.alone.Less(item.Ref) {
		h.alone = item.Ref
	}
	h.full, h.pages = h.lone, 1
}

// roomFor returns how many more messages like these the publisher may have.
func (s *Scheduler) roomFor(items []storage.Item) int {
	left := s.left()
	if len(items) == 0 || !areOfOne(items) {
		return left
	}
	t, known := s.targets.byName[items[0].Target]
	if !known {
		return min(s.limits.Handed, left)
	}
	return s.allowance(t, left) - int(t.handed)
}

// areOfOne reports whether all are for the target of the first.
func areOfOne(items []storage.Item) bool {
	return !slices.ContainsFunc(items, func(other storage.Item) bool { return other.Target != items[0].Target })
}

// takeBack takes in what is claimed of a topic that comes back, in order, and returns how many: fewer
// than there are when all are for one target, which has enough for now.
func (s *Scheduler) takeBack(h *heldTopic, items []storage.Item, limit int64) (taken int, err error) {
	h.full = ""
	var due []DueMessage
	defer func() { s.publish(due) }()
	left := s.left()
	for i, item := range items {
		t := s.targets.get(item.Target)
		_, kept := s.window.kept[item.Seq]
		switch {
		case kept:
			// It is in the wheel or out already.
		case !item.Ref.Less(s.targets.reach(t)):
			s.targets.leave(t, item.Ref) // its target is still to read it
		case t.hasOwnMark():
			s.targets.stray(t, item.Ref)
		case item.Due > limit:
			if err := s.add(t, item); err != nil {
				return i, err
			}
		case int(t.handed) < s.allowance(t, left):
			h.read = storage.Ref{Due: item.Due, Seq: item.Seq + 1}
			due = s.hand(due, t, item.Ref, s.topics.index(item.Topic, s.window))
		case areOfOne(items) && !item.Ref.Less(h.passing):
			h.waitFor(item)
			return i, nil
		default:
			s.targets.stop(t, item.Ref)
		}
		s.targets.forget(t)
	}
	return len(items), nil
}
