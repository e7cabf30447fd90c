package raftfsm

import (
	"encoding/binary"

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
	o.Cursor, o.Counts = c.Next, o.Plus(countsOf(answers, uint64(len(c.Operations)))).Plus(bulk.Counts{Failed: c.Failed})
	if c.Problem != "" {
		o.Problem = c.Problem
	}
	if c.Finished {
		o.State, o.Ended = bulk.Finished, f.store.Time()
	}
	f.store.SetBulk(o)
	w.result.Answers, w.result.Changed = [][]Answer{answers}, true
	return nil
}

// countsOf counts what came of so many operations. answers is nil where all just accept their messages.
func countsOf(answers []Answer, operations uint64) (n bulk.Counts) {
	if answers == nil {
		n.Done = operations
	}
	for _, a := range answers {
		switch a.Code {
		case Scheduled, Superseded, WasCancelled:
			n.Done++
		case NotFound:
			n.NotFound++
		default:
			n.TooLate++
		}
	}
	return n
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
	dst = appendText(binary.AppendUvarint(dst, c.Failed), c.Problem)
	return appendWithMore(dst, c.Operations)
}

func (c StopBulk) append(dst []byte) []byte {
	return appendText(binary.AppendUvarint(header(dst, 1, kindStopBulk, c.Time), c.ID), c.Problem)
}
