package raftfsm

import (
	"fmt"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// What an operation comes to is decided here, from what the id stands for when it comes:
//
//	pending X    alive, newest of its id, not claimed, not expired: X can still be ended
//	on its way W the same, but claimed: W will be delivered, and has given up its id
//	ended E      the newest of its id has ended, or has expired though it is alive
//	unknown      nothing is known of the id, or the operation has none
//
// An operation without an id may name a message by its seq instead (Of). Nothing is kept of how such
// a message ended, so it is pending, on its way, expired (ended E), or unknown because it is dead. A Cancel may
// do both: as long as the message lives it is about this one, also if that has lost its id to a newer one,
// and of a dead one the id tells.
//
// The newest is the one with the highest seq among those that are alive and the outcomes
// that are kept. Of those that are alive since before the ids were open the newest alone counts then and
// for good (storage.Store OpenIDs), whatever else has ended until then. A condition holds of X alone: Absent if there is none, Present if there is one,
// Exactly if its seq is the one named.
//
//	verb      condition  pending X                 on its way W       ended E               unknown
//	Schedule  holds      Superseded: X replaced    Scheduled, after W Scheduled             Scheduled
//	Schedule  does not   Conflict X                Conflict 0         Conflict 0            Conflict 0
//	Cancel    holds      WasCancelled: X cancelled TooLate W          AlreadyCancelled E *  NotFound
//	Cancel    does not   Conflict X                TooLate W          AlreadyCancelled E *  NotFound
//	Change    holds      Superseded: X replaced    TooLate W          TooLate E             NotFound
//	Change    does not   Conflict X                TooLate W          TooLate E             NotFound
//	                                               * if E was cancelled, else TooLate E
//
// So Cancel and Change need X, and say why there is none whatever their condition. What an
// answer names is what was done: Scheduled and Superseded have accepted the entry (with Before,
// the W that goes out besides, or the X that was killed), WasCancelled has killed X, Conflict
// has kept that the operation was refused, the others have done nothing.
//
// With a key (Once) the answer is looked up before all that, and kept after it:
//
//	nothing is kept of the key   carried out; its code and its seq are kept, whatever they are
//	the same was asked           that code and that seq, Again; nothing is done
//	something else was asked     KeyReused; nothing is done
//
// Behind that, a dead letter that is marked is not replayed (Replayed; nothing is done), unless Again is
// said; one that is not is marked when its entry is accepted, in the same step. So of two replays one
// takes effect, whoever led when they were asked.

// A standing is what an id stands for. It is the same on every node: the alive-set, the
// outcomes, the claim and the time are replicated.
type standing struct {
	pending storage.Found    // X; Seq 0: none
	onWay   uint64           // the newest alive one if it is claimed, 0: none
	ended   outcomes.Outcome // E; Seq 0: none
}

// meant returns what stands for what the operation is about: the message that it names while that is alive,
// or else what its id does.
func (f *FSM) meant(o *Operation) (standing, error) {
	if o.Of != nil {
		if s := f.standingOf(o.Of); s != (standing{}) {
			s.ended.Name = o.Entry.Name
			return s, nil
		}
	}
	return f.standing(&o.Entry)
}

// standingOf returns what becomes of a message that is named by its seq.
func (f *FSM) standingOf(m *storage.Found) (s standing) {
	switch {
	case !f.store.Alive(m.Seq):
	case m.Expires != 0 && m.Expires <= f.store.Time():
		s.ended = outcomes.Outcome{Kind: outcomes.Expired, Seq: m.Seq, Due: m.Due, At: m.Expires, Target: m.Target}
	case f.store.Claimed(m.Ref, m.Topic, m.Target):
		s.onWay = m.Seq
	default:
		s.pending = *m
	}
	return s
}

// standing returns what the entry's id stands for. The error is the disk's: nobody may guess then.
func (f *FSM) standing(e *storage.Entry) (s standing, err error) {
	if e.ID == "" {
		return standing{}, nil
	}
	var found storage.Found
	if found, s.ended, err = f.store.Newest(e); err != nil || found.Seq == 0 {
		return s, err
	}
	if f.store.Claimed(found.Ref, found.Topic, found.Target) {
		s.onWay = found.Seq
	}
	expired := found.Expires != 0 && found.Expires <= f.store.Time()
	switch {
	case s.onWay == 0 && !expired:
		// It waits. If a newer one has ended, that was before the ids were open, for since then each has
		// taken the place of the one that waited.
		s.pending, s.ended = found, outcomes.Outcome{}
	case found.Seq < s.ended.Seq:
		// A newer one has ended, after this one was claimed or had expired.
	case expired:
		s.ended = outcomes.Outcome{Name: e.Name, Kind: outcomes.Expired, Seq: found.Seq,
			Due: found.Due, At: found.Expires, Target: found.Target}
	default:
		s.ended = outcomes.Outcome{}
	}
	return s, nil
}

// resolve answers the operation; the seq of what a Schedule or a Change accepts is still to be
// filled in, and Since of what is not found.
func (o *Operation) resolve(s *standing) Answer {
	x := s.pending.Seq
	switch holds := o.If.holds(x, o.Seq); {
	case !holds && (x != 0 || o.Verb == Schedule):
		return Answer{Code: Conflict, Seq: x}
	case x != 0 && o.Verb == Cancel:
		return Answer{Code: WasCancelled, Seq: x}
	case x != 0:
		return Answer{Code: Superseded, Before: x}
	case o.Verb == Schedule:
		return Answer{Code: Scheduled, Before: s.onWay}
	case s.ended.Kind == outcomes.Cancelled && o.Verb == Cancel:
		ended := s.ended
		return Answer{Code: AlreadyCancelled, Seq: ended.Seq, Outcome: &ended}
	case s.ended.Seq != 0:
		ended := s.ended
		return Answer{Code: TooLate, Seq: ended.Seq, Outcome: &ended}
	case s.onWay != 0:
		return Answer{Code: TooLate, Seq: s.onWay}
	}
	return Answer{Code: NotFound}
}

// holds reports whether the condition holds when the pending message is the one of that seq, 0:
// none.
func (c Condition) holds(pending, expected uint64) bool {
	switch c {
	case Absent:
		return pending == 0
	case Present:
		return pending != 0
	case Exactly:
		return pending != 0 && pending == expected
	}
	return true
}

// isPlain reports whether the operation accepts its entry whatever is known, and nobody waits to
// hear of it.
func (o *Operation) isPlain() bool {
	return o.Verb == Schedule && o.If == Always && o.Entry.ID == "" && o.Once == nil && o.Replay == nil
}

// carryOut does what operations ask, in their order: each sees what those before it did, and what
// the command accepted before. The answers are nil if all are plain.
func (f *FSM) carryOut(w *work, operations []Operation) (answers []Answer, err error) {
	plain := true
	f.names = f.names[:0]
	for i := range operations {
		plain = plain && operations[i].isPlain()
		if e := &operations[i].Entry; e.ID != "" {
			e.Name = name.Of(e.Topic, e.ID)
			f.names = append(f.names, e.Name)
		}
	}
	if !plain {
		answers = make([]Answer, len(operations))
	}
	if len(f.names) > 0 {
		w.accept() // they may be about what was accepted before them
	}
	f.fresh = f.store.Fresh(f.names, f.fresh[:0])
	f.seen.Clear(len(f.names))
	var unknown standing
	named := 0
	for i := range operations {
		o := &operations[i]
		if answers == nil {
			w.add(&o.Entry)
			continue
		}
		if o.isPlain() {
			answers[i] = Answer{Code: Scheduled, Seq: w.add(&o.Entry)}
			continue
		}
		fresh := false
		if e := &o.Entry; e.ID != "" {
			fresh = f.fresh[named]
			named++
		}
		if e := &o.Entry; e.ID == "" || f.seen.Add(&e.Name) {
			w.accept() // it may be about what was accepted before it
			fresh = false
		}
		if fresh && o.Of == nil && o.Once == nil && o.Replay == nil {
			f.settle(w, o, &unknown, &answers[i]) // nothing is known of its id, and it is about nothing else
			continue
		}
		if err = f.carryOutOnce(w, o, &answers[i]); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return answers, nil
}

// carryOutOnce gives the answer that is kept of the operation's key, or else carries it out.
func (f *FSM) carryOutOnce(w *work, o *Operation, a *Answer) error {
	if o.Once == nil {
		return f.carryOutReplay(w, o, a)
	}
	if kept, known := f.answered(*o.Once); known {
		*a = kept
		return nil
	}
	if err := f.carryOutReplay(w, o, a); err != nil {
		return err
	}
	f.keep(*o.Once, *a)
	return nil
}

// carryOutReplay carries the operation out, unless it replays what was replayed, and marks what it replays.
func (f *FSM) carryOutReplay(w *work, o *Operation, a *Answer) error {
	r := o.Replay
	if r == nil {
		return f.carryOutOne(w, o, a)
	}
	if !r.Again && f.store.Replayed(r.At, r.Offset) {
		*a = Answer{Code: Replayed}
		return nil
	}
	if err := f.carryOutOne(w, o, a); err != nil {
		return err
	}
	if a.Code == Scheduled || a.Code == Superseded {
		f.store.MarkReplayed(r.At, r.Offset, r.First)
	}
	return nil
}

// answered returns the answer to something that was asked before with this key.
func (f *FSM) answered(o Once) (a Answer, known bool) {
	if o == (Once{}) {
		return a, false
	}
	kept, known := f.store.Answered(o.Key)
	switch {
	case !known:
		return a, false
	case kept.By != o.Content:
		return Answer{Code: KeyReused}, true
	}
	return Answer{Code: Code(kept.Partition), Seq: kept.Seq, Again: true}, true
}

// keep keeps the answer to the next one with this key.
func (f *FSM) keep(o Once, a Answer) {
	if o != (Once{}) {
		f.store.End(outcomes.Outcome{Name: o.Key, Kind: outcomes.Answered, Seq: a.Seq, By: o.Content, At: f.store.Time(), Partition: int32(a.Code)})
	}
}

func (f *FSM) carryOutOne(w *work, o *Operation, a *Answer) error {
	s, err := f.meant(o)
	if err != nil {
		return err
	}
	f.settle(w, o, &s, a)
	return nil
}

// settle does what the operation comes to when what it is about stands so.
func (f *FSM) settle(w *work, o *Operation, s *standing, a *Answer) {
	e := &o.Entry
	*a = o.resolve(s)
	x := &s.pending
	if a.Code == WasCancelled || a.Code == Superseded {
		w.kill(storage.SeqRun{First: x.Seq, Last: x.Seq})
	}
	if a.Code == Scheduled || a.Code == Superseded {
		a.Seq = w.add(e)
	}
	if a.Code == Superseded && e.ID == "" && e.Due < x.Due {
		f.store.MovedEarlier()
	}
	ended := outcomes.Outcome{Seq: x.Seq, Due: x.Due, Target: x.Target}
	switch a.Code {
	case WasCancelled:
		ended.Kind = outcomes.Cancelled
	case Superseded:
		ended.Kind, ended.By = outcomes.Replaced, a.Seq
	case Conflict:
		ended = outcomes.Outcome{Kind: outcomes.Refused, Due: e.Due, Target: e.Target}
		if p := w.part; p != nil && o.Record > 0 && e.Topic == p.Topic {
			ended.Kind, ended.Partition, ended.Offset = outcomes.RefusedRecord, p.Partition, p.From+int64(o.Record)-1
		}
	case NotFound:
		if a.Since = f.store.OutcomesSince(); o.Of != nil {
			a.Since = f.store.Time()
		}
	}
	if ended.Kind != 0 && e.ID != "" {
		ended.Name, ended.At = e.Name, f.store.Time()
		f.store.End(ended)
	}
}
