package raftfsm

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/codec"
)

// What an operation on many messages promises: whoever leads, each message that it means has one fate, and
// none is meant that was accepted after its start.
//
// A leader walks over the schedule and proposes step by step what is to be done. It may be deposed while
// a step of its own is on its way, and its successor proposes the same messages again, or others beside
// them:
//
//	old leader   StepBulk at c0, next c1 ------------.
//	new leader   reads the cursor c0, StepBulk at c0, next c2 --.
//	log                     whichever comes first moves the cursor; the other finds it elsewhere
//
// So a step that is not at the cursor does nothing at all. What a step changes gets a new seq, above the
// operation's UpperSeq, so no later step means it.

func (f *FSM) startBulk(w *work, c StartBulk) {
	f.store.SetTime(c.Time)
	a, known := f.answered(c.Once)
	if !known {
		a = Answer{Code: Conflict}
		if id, ok := f.store.StartBulk(bulk.Operation{What: c.What, Who: c.Who, Started: c.Time}); ok {
			a = Answer{Code: Scheduled, Seq: id}
			f.keep(c.Once, a)
		}
	}
	w.result.Answers = [][]Answer{{a}}
}

func (f *FSM) stepBulk(w *work, c StepBulk) error {
	f.store.SetTime(c.Time)
	o, runs := f.store.RunningBulk(c.ID)
	if !runs || o.Cursor != c.From {
		return nil
	}
	answers, err := f.carryOut(w, c.Operations)
	if err != nil {
		return err
	}
	counts, problem := countsOf(answers, c.Operations)
	o.Cursor, o.Counts = c.Next, o.Plus(counts).Plus(c.Passed)
	if problem = cmp.Or(problem, c.Problem); problem != "" {
		o.Problem = problem
	}
	if c.Finished {
		o.State, o.Ended = bulk.Finished, f.store.Time()
	}
	f.store.SetBulk(o)
	w.result.Answers, w.result.Changed = [][]Answer{answers}, true
	return nil
}

// countsOf counts what came of the operations, and tells the last problem of them, "": there is none. answers
// is nil where all just accept their messages.
//
// A replay is too late when the dead letter was replayed before. It fails where a message waits under its id,
// which it must not replace. Only the log can tell, so the words are made here, and are part of the state: they
// are never changed.
func countsOf(answers []Answer, operations []Operation) (n bulk.Counts, problem string) {
	if answers == nil {
		n.Done = uint64(len(operations))
	}
	for i, a := range answers {
		o := &operations[i]
		switch {
		case a.Code == Scheduled, a.Code == Superseded, a.Code == WasCancelled:
			n.Done++
		case a.Code == NotFound:
			n.NotFound++
		case a.Code == Conflict && o.Replay != nil:
			n.Failed++
			problem = fmt.Sprintf("dead letter %d/%d: message %d waits under its id, which it would replace: cancel that first", o.Replay.At.Number, o.Replay.Offset, a.Seq)
		default:
			n.TooLate++
		}
	}
	return n, problem
}

func (f *FSM) stopBulk(w *work, c StopBulk) {
	f.store.SetTime(c.Time)
	o, runs := f.store.RunningBulk(c.ID)
	if !runs {
		return
	}
	o.State, o.Ended, o.Problem = bulk.Stopped, f.store.Time(), c.Problem
	f.store.SetBulk(o)
	w.result.Changed = true
}

// Their forms are drawn in encode.go.

func (c StartBulk) append(dst []byte) []byte {
	dst = appendText(appendText(header(dst, 1, kindStartBulk, c.Time), c.What), c.Who)
	return binary.AppendUvarint(append(dst, c.Once.Key[:]...), c.Once.Content)
}

func (c StepBulk) append(dst []byte) []byte {
	dst = binary.AppendUvarint(header(dst, 1, kindStepBulk, c.Time), c.ID)
	dst = codec.AppendBool(appendText(appendText(dst, c.From), c.Next), c.Finished)
	for _, n := range []uint64{c.Passed.TooLate, c.Passed.NotFound, c.Passed.Failed} {
		dst = binary.AppendUvarint(dst, n)
	}
	return appendWithMore(appendText(dst, c.Problem), c.Operations)
}

func (c StopBulk) append(dst []byte) []byte {
	return appendText(binary.AppendUvarint(header(dst, 1, kindStopBulk, c.Time), c.ID), c.Problem)
}
