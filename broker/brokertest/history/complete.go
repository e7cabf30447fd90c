package history

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
)

// A Message is one that came to be: as the log has it, or as it came out.
type Message struct {
	ID    string
	Seq   uint64
	Value string
	At    time.Time // when it came out
}

var (
	// errIllegal begins what is wrong in any order, in the words of Check.
	errIllegal = errors.New("the calls are not linearizable (Illegal)")
	// errUntold is wrong: it was done, and nobody was told so or may doubt it.
	errUntold = errors.New("came to be though nobody was told")
)

// History returns what was called, with the deliveries: those are by time, and may have copies. inLog has all
// that the log has accepted; where nobody can tell it is nil, and a call without an answer may have made any
// message that was seen, or one that was not. The error tells what is wrong whatever the order of the calls is.
func (c *Clients) History(inLog, came []Message) ([]Call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wrong := slices.Clone(c.wrong)
	first := make(map[uint64]Message)
	for _, m := range came {
		if _, copied := first[m.Seq]; !copied {
			first[m.Seq] = m
		}
	}
	untold := make(map[uint64]Message) // made by calls without an answer
	for _, m := range c.seen(inLog, first) {
		untold[m.Seq] = m
	}
	begun := make(map[uint64]int64)
	for _, call := range c.calls {
		if call.makes() && !call.isDoubtful() {
			delete(untold, call.Seq)
			begun[call.Seq] = call.From
		}
	}
	kept := make([]Call, 0, len(c.calls))
	explained := make(map[uint64]bool)
	for i, call := range c.calls {
		if call.makes() && call.isDoubtful() {
			for _, m := range untold {
				if m.ID == call.ID && (call.Value == "" || m.Value == "" || m.Value == call.Value) {
					call.Perhaps = append(call.Perhaps, m.Seq)
					explained[m.Seq] = true
				}
			}
			if inLog == nil {
				call.Perhaps = append(call.Perhaps, unseen+uint64(i))
			}
			if len(call.Perhaps) == 0 {
				continue // it never came to be
			}
			slices.Sort(call.Perhaps)
		}
		kept = append(kept, call)
	}
	for _, m := range untold {
		if !explained[m.Seq] || m.Value != "" && c.undone[m.Value] { // one that never came has no value that is known
			wrong = append(wrong, fmt.Errorf("message %d of %s, %q, %w", m.Seq, m.ID, m.Value, errUntold))
		}
	}
	for _, m := range first {
		kept = append(kept, Call{
			ID: m.ID, Client: -1, Verb: Deliver, From: begun[m.Seq], To: int64(m.At.Add(time.Millisecond).Sub(c.begin)), Seq: m.Seq,
		})
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%w:\n%w", errIllegal, errors.Join(wrong...))
	}
	return kept, nil
}

// unseen begins the seqs of messages that nobody ever saw.
const unseen = 1 << 62

// seen returns the messages that are known to have been.
func (c *Clients) seen(inLog []Message, came map[uint64]Message) []Message {
	if inLog != nil {
		return inLog
	}
	var all []Message
	for _, call := range c.calls {
		for _, seq := range []uint64{call.Seq, call.Before} {
			if _, known := came[seq]; seq > 0 && !known {
				all = append(all, Message{ID: call.ID, Seq: seq})
			}
		}
	}
	for _, m := range came {
		all = append(all, m)
	}
	return all
}

// makes reports whether the call makes a message, if it has effect.
func (c *Call) makes() bool {
	return (c.Verb == Schedule || c.Verb == Change) && (c.Code == 0 || c.Code == raftfsm.Scheduled || c.Code == raftfsm.Superseded)
}

// isDoubtful reports whether nobody was told what came of the call.
func (c *Call) isDoubtful() bool { return c.Code == 0 && c.Seq == 0 }
