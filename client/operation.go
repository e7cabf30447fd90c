package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An OperationRequest asks for one thing to be done to all that a filter means. What is produced after the
// start is never touched, and times are fixed then.
type OperationRequest struct {
	Verb   string `json:"verb"`            // OperationCancel and so on
	Filter Filter `json:"filter,omitzero"` // which messages; of a replay: which dead letters
	// All says in words that a filter without any condition means everything.
	All    bool   `json:"all,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`              // nothing is done: the answer tells how many would be meant
	Reason string `json:"reason,omitempty" wanted:"true"` // why, for whoever reads the list of operations; a dry run needs none
	Rate   int    `json:"rate,omitempty"`                 // messages a second at most; 0: as fast as deliveries allow
	// Change is what is to be different: of a change, and of a replay, which has no Shift.
	Change *BulkChange `json:"change,omitempty"`
	// Again has a replay take dead letters that were replayed before, too.
	Again bool `json:"again,omitempty"`
}

// What an [OperationRequest] may say at most.
const (
	MostReason = 500       // bytes of Reason, blanks around it aside
	MostRate   = 1_000_000 // messages a second
)

// Check returns what is wrong with Reason, Rate, Again and Change, or nil, but for the times and the target of a
// change: these depend on the present and on the cluster.
func (r *OperationRequest) Check() *Problem {
	reason := strings.TrimSpace(r.Reason)
	changes, replays := r.Verb == OperationChange, r.Verb == OperationReplay
	switch {
	case reason == "" && !r.DryRun:
		return BadField("reason", "", "is missing: say why, for those who find it in the list of operations")
	case len(reason) > MostReason:
		return BadField("reason", reason, fmt.Sprintf("has %d bytes: write %d at most", len(reason), MostReason))
	case r.Rate < 0 || r.Rate > MostRate:
		return BadField("rate", strconv.Itoa(r.Rate), fmt.Sprintf("is no rate: give 1 to %d messages a second, or leave it out", MostRate))
	case r.Again && !replays:
		return BadField("again", "true", "goes with dead letters alone: leave it out")
	case r.Change != nil && !changes && !replays:
		return BadField("change", "", fmt.Sprintf("goes with the verbs %s and %s alone: leave it out", OperationChange, OperationReplay))
	case replays && r.Change != nil && r.Change.Shift != "":
		return BadField("change.shift", r.Change.Shift, "is of messages that wait, which have a time: give deliver_at or deliver_after")
	case changes || r.Change != nil && *r.Change != (BulkChange{}):
		return r.Change.check()
	}
	return nil
}

// CheckAll returns what is wrong between Filter and All, or nil: a filter that leaves out nothing of what there
// may be goes with All alone, and another one without it. Both arguments are milliseconds: the present as an
// epoch time, and the longest delay that any message may have.
//
// A time is a condition only if something may lie beyond it. States are none, since each message is in one.
//
//	                 from is a condition           to is a condition
//	messages         after a minute from now       until 99 hundredths of maxDelay from now
//	dead letters     after the beginning of 1999   until now
//
// The last hundredth is for clocks that differ, and for the way of the request: what is the longest delay for
// its sender is a little less for who judges it. So is the minute. It leaves out nothing that an operation could
// be sure to meet either: what is due within it is on its way before long, whoever asks.
func (r *OperationRequest) CheckAll(now, maxDelay int64) *Problem {
	const remedy = ", so the filter means everything: give a topic, a target or a time that leaves something out, of messages also a prefix, of dead letters a code; or, if everything is meant, say \"all\": true"
	f := &r.Filter
	firstFrom, early := now+marginFrom, "is a minute ahead at most, so it leaves out only what is on its way before long"
	lastTo, late := now+maxDelay-maxDelay/100, "is as late as any message may be due"
	if r.Verb == OperationReplay {
		firstFrom, early = beforeLetters, "is before there were any dead letters"
		lastTo, late = now, "is ahead, and all dead letters were written before now"
	}
	everything := f.Topic == "" && f.Prefix == "" && f.Target == "" && f.Code == "" && f.From <= firstFrom && (f.To == 0 || f.To > lastTo)
	switch {
	case !everything && r.All:
		return BadField("all", "true", "stands beside a filter that means some messages: leave one of the two out")
	case !everything || r.All:
		return nil
	case f.To != 0:
		return BadField("filter.to", strconv.FormatInt(f.To, 10), late+remedy)
	case f.From != 0:
		return BadField("filter.from", strconv.FormatInt(f.From, 10), early+remedy)
	default:
		return BadField("filter", "", "has no condition"+remedy)
	}
}

// marginFrom is how far ahead a From may be, in milliseconds, and still be no condition.
const marginFrom = 60_000

// beforeLetters is the beginning of 1999: Kafka is younger, and so is every dead letter.
const beforeLetters = 915_148_800_000

// The verbs of an [OperationRequest].
const (
	OperationCancel = "cancel" // they are never delivered
	OperationChange = "change" // they are due at another time, or go elsewhere
	OperationNow    = "now"    // they are due at once
	OperationReplay = "replay" // dead letters are scheduled anew
)

// A BulkChange is what an operation makes different. At most one of DeliverAt, DeliverAfter and Shift is there.
type BulkChange struct {
	DeliverAt    string `json:"deliver_at,omitempty"`    // all at one time, as HeaderAt
	DeliverAfter string `json:"deliver_after,omitempty"` // likewise, counted from the start of the operation, as HeaderAfter
	Shift        string `json:"shift,omitempty"`         // each so much later than it was due, as HeaderAfter; -1h: earlier
	DeliverTo    string `json:"deliver_to,omitempty"`    // all to one target
}

// check returns what is wrong with a change that is wanted, or nil.
func (c *BulkChange) check() *Problem {
	const one = "give one of deliver_at, deliver_after and shift, or deliver_to, or both"
	if c == nil || *c == (BulkChange{}) {
		return BadField("change", "", "says nothing: "+one)
	}
	times := 0
	for _, text := range []string{c.DeliverAt, c.DeliverAfter, c.Shift} {
		if text != "" {
			times++
		}
	}
	if times > 1 {
		return BadField("change", "", "has several times: "+one)
	}
	_, p := c.ShiftBy()
	return p
}

// ShiftBy returns by how many milliseconds Shift moves each message, and what is wrong with it, or nil. It is a
// delay as of HeaderAfter, with a minus in front for earlier. 0: there is none.
func (c *BulkChange) ShiftBy() (int64, *Problem) {
	if c.Shift == "" {
		return 0, nil
	}
	delay, earlier := strings.CutPrefix(c.Shift, "-")
	parsed, err := Parse([]Header{{Key: HeaderAfter, Value: []byte(delay)}}, 0)
	if wrong, ok := errors.AsType[*HeaderError](err); ok {
		return 0, BadField("change.shift", c.Shift, wrong.Problem+": "+wrong.Remedy)
	}
	by := parsed.DueAt
	if by == 0 {
		return 0, BadField("change.shift", c.Shift, "moves nothing: give how much later, such as 90m, or earlier, such as -90m")
	}
	if earlier {
		by = -by
	}
	return by, nil
}

// An Operation is one that was asked for. It is replicated, survives a fail-over and is known for a day
// after its end. Each message it means has one fate.
type Operation struct {
	ID       string      `json:"id"` // "": of a dry run
	Verb     string      `json:"verb"`
	State    string      `json:"state"` // OperationRunning and so on
	Filter   Filter      `json:"filter"`
	All      bool        `json:"all,omitempty"`
	DryRun   bool        `json:"dry_run,omitempty"`
	Reason   string      `json:"reason,omitempty"`
	Who      string      `json:"who,omitempty"` // started it
	Rate     int         `json:"rate,omitempty"`
	Change   *BulkChange `json:"change,omitempty"`
	Again    bool        `json:"again,omitempty"`
	UpperSeq uint64      `json:"upper_seq,string"`       // messages after this one are not meant
	Started  int64       `json:"started,string"`         // epoch milliseconds
	Ended    int64       `json:"ended,omitempty,string"` // likewise; 0: it runs
	// Matched is how many were meant at the start, and Within by how much that may be off; 0: exact. Of dead
	// letters those are left out that were replayed before, unless Again; Within is how many were not looked at.
	Matched  uint64 `json:"matched,string"`
	Within   uint64 `json:"within,string"`
	Done     uint64 `json:"done,string"`
	TooLate  uint64 `json:"too_late,string"`   // on their way, or ended, when their turn came, or before it; dead letters: replayed before
	NotFound uint64 `json:"not_found,string"`  // nothing is known of them any more; dead letters: offsets that Kafka has no more, whatever they were
	Failed   uint64 `json:"failed,string"`     // refused: a change, or a replay, that no limit or target allows
	Problem  string `json:"problem,omitempty"` // of the last one that failed, or what the operation waits for, or who stopped it
}

// The states of an [Operation].
const (
	OperationRunning  = "running"
	OperationStopped  = "stopped"  // by somebody; what was done stays done
	OperationFinished = "finished" // all that is meant has been dealt with
)

// Operations is the answer to a list of them, the newest first.
type Operations struct {
	Operations []Operation `json:"operations"`
}

// A DeadLetterPage is a part of the dead letters, the newest first.
type DeadLetterPage struct {
	DeadLetters []DeadLetter `json:"dead_letters"`
	Next        string       `json:"next,omitempty"` // cursor of the page after it; "": this is the last
}

// A DeadLetter is a record that could not be scheduled or delivered, as it lies in a dead-letter topic.
type DeadLetter struct {
	Topic     string `json:"topic"` // the dead-letter topic
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset,string"`
	Code      string `json:"code"`             // why, in one word that does not change
	Detail    string `json:"detail"`           // why, for people
	Target    string `json:"target,omitempty"` // where it was to go, if that is known
	Origin    string `json:"origin"`           // topic/partition/offset on the delay topic; api/seq: it came with no record
	// DelayTopic is the one of Origin.
	DelayTopic string `json:"delay_topic,omitempty"`
	ID         string `json:"id,omitempty"` // that its producer chose
	Time       int64  `json:"time,string"`  // when it was written there, epoch milliseconds
	Size       int    `json:"size"`         // key, value and headers, bytes
	Replayed   bool   `json:"replayed,omitempty"`
	// Foreign: somebody else has put the record there. Nothing is known of where it was to go.
	Foreign bool     `json:"foreign,omitempty"`
	Payload *Payload `json:"payload,omitempty"` // of one that was asked for alone, if it may be read
}

// A ReplayRequest schedules a dead letter anew. The zero value: at once, to its target.
type ReplayRequest struct {
	DeliverAt    string `json:"deliver_at,omitempty"`
	DeliverAfter string `json:"deliver_after,omitempty"` // from when the cluster takes the request
	DeliverTo    string `json:"deliver_to,omitempty"`
	Again        bool   `json:"again,omitempty"` // also if it was replayed before
	Reason       string `json:"reason,omitempty"`
}
