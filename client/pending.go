package client

import (
	"encoding/json"
	"fmt"
)

// The answers of this file are read by programs of other versions: a field keeps its name and type.
// 64-bit numbers are texts in JSON, since many readers have no such numbers. Times are epoch
// milliseconds. A Status, and a Pause, which is part of one, have numbers: they are older, and while nodes
// are upgraded programs of two versions read them.

// A Filter says which messages are meant. The zero value means all of them.
type Filter struct {
	Topic  string `json:"topic,omitempty"`       // their delay topic; "": any
	Prefix string `json:"prefix,omitempty"`      // what their ids begin with, chosen ones or topic/partition/offset
	Target string `json:"target,omitempty"`      // their target topic; "": any
	From   int64  `json:"from,omitempty,string"` // they are due then or later, epoch milliseconds, never seconds; 0: at any time
	To     int64  `json:"to,omitempty,string"`   // and before then; 0: at any time
	// States they are in: StateWaiting, StateParked, StatePaused, StateClaimed, StateAside or StateExpired; none: any.
	States []string `json:"states,omitempty"`
	// Code is why dead letters became such; "": any. Of other messages it means nothing and is refused, as
	// Prefix and States are of dead letters. From and To are when these were written.
	Code string `json:"code,omitempty"`
}

// The states of a [Message].
const (
	StateWaiting = "waiting" // for its time
	StateParked  = "parked"  // its target cannot be written to, or catches up since
	StatePaused  = "paused"  // its delay topic or its target is
	StateClaimed = "claimed" // it is on its way, and can be neither cancelled nor changed any more
	StateAside   = "aside"   // a dead letter that its topic refuses: it waits until the topic is mended
	StateExpired = "expired" // no try to deliver it begins any more, and it ends when its turn comes
)

// A Page is a part of what is pending, all of one index of the log, in order of delivery.
type Page struct {
	Index    uint64    `json:"index,string"`   // of the log
	Pending  uint64    `json:"pending,string"` // messages at that index, whatever the filter
	Messages []Message `json:"messages"`
	Next     string    `json:"next,omitempty"` // cursor of the page after it; "": this is the last
}

// A Message is one that is pending.
type Message struct {
	Topic   string `json:"topic"`  // the delay topic
	ID      string `json:"id"`     // the producer's, or else From
	Chosen  bool   `json:"chosen"` // whether the producer gave it
	Seq     uint64 `json:"seq,string"`
	Due     int64  `json:"due,string"`               // epoch milliseconds
	Expires int64  `json:"expires,omitempty,string"` // epoch milliseconds; 0: never
	Target  string `json:"target"`
	State   string `json:"state"` // StateWaiting and so on
	From    string `json:"from"`  // topic/partition/offset of the record that it came with; api/seq: it came with none
	Size    int    `json:"size"`  // as it is stored, bytes
	// Unreadable: what is stored is damaged, or of a newer version. Topic, ID and From may be missing.
	Unreadable bool     `json:"unreadable,omitempty"`
	Payload    *Payload `json:"payload,omitempty"` // if it was asked for, and may be read
}

// A Payload is a record as it came. Bytes are base64 in JSON; nil is Kafka's null.
type Payload struct {
	Key     []byte          `json:"key" nullable:"true"`
	Value   []byte          `json:"value" nullable:"true"`
	Headers []PayloadHeader `json:"headers"`
}

// A PayloadHeader is one header of a [Payload].
type PayloadHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value" nullable:"true"`
}

// A Life is what is known of an id at one index of the log.
type Life struct {
	Index    uint64    `json:"index,string"`
	Message  *Message  `json:"message,omitempty"` // the newest that is pending
	Outcomes []Outcome `json:"outcomes"`          // of those before it, the oldest first
	// Since: outcomes from before may have been forgotten, epoch milliseconds; 0: none were.
	Since int64 `json:"since,string"`
}

// A Finding is what came of a search for a message that nobody chose an id for.
type Finding struct {
	Index   uint64   `json:"index,string"` // of the page that was read last
	Message *Message `json:"message,omitempty"`
	Next    string   `json:"next,omitempty"` // nothing was found so far: where to search on; "": there is nothing
}

// An Outcome is what became of a message that had an id, or of an operation that was refused.
type Outcome struct {
	Kind   string `json:"kind"`                 // OutcomeDelivered and so on
	Seq    uint64 `json:"seq,string,omitempty"` // of the message; none: refused
	By     uint64 `json:"by,string,omitempty"`  // replaced: the seq of its successor
	Due    int64  `json:"due,string"`           // epoch milliseconds
	At     int64  `json:"at,string"`            // when it ended, likewise
	Target string `json:"target"`
	// Partition and Offset tell where it went, where that is known. Of refused they are those of the record
	// that was refused, in the delay topic; without them the refusal came through the API, or before feature level 4.
	Partition *int32 `json:"partition,omitempty"`
	Offset    *int64 `json:"offset,omitempty,string"`
}

// The kinds of an [Outcome].
const (
	OutcomeDelivered    = "delivered"
	OutcomeDeadLettered = "dead-lettered"
	OutcomeExpired      = "expired"   // it was not delivered before Expires
	OutcomeCancelled    = "cancelled" // it will never be delivered
	OutcomeReplaced     = "replaced"  // likewise; By is what takes its place
	OutcomeRefused      = "refused"   // no message: the condition of an operation did not hold
)

// A Count says how many messages a filter means, at one index of the log.
type Count struct {
	Index  uint64 `json:"index,string"`
	Count  uint64 `json:"count,string"`
	Exact  bool   `json:"exact"`
	Within uint64 `json:"within,string"` // by how much Count may be off, with a probability of 95 %; 0: exact
}

// A Histogram says how many messages are pending, at one index of the log.
type Histogram struct {
	Index   uint64   `json:"index,string"`   // of the log
	Pending uint64   `json:"pending,string"` // whatever the filter
	Exact   bool     `json:"exact"`          // otherwise counts are estimates, each of which tells its bound
	Buckets []Bucket `json:"buckets"`        // in order of time and target; empty ones are left out
	// Unseen is how many messages a bucket may have that is left out because none was seen, with a probability of 95 %.
	Unseen uint64 `json:"unseen,string"`
	// LeftOut is how many buckets with messages are left out because there are too many: those of the fewest.
	LeftOut int `json:"left_out,omitempty"`
	// Untold are messages from before feature level 3, of which only their bodies tell whether the
	// filter means them. They are in no bucket.
	Untold *Bucket `json:"untold,omitempty"`
}

// MostBounds is how many bounds a [Histogram] may have.
const MostBounds = 1000

// A Bucket is how many messages are due from one time on, and before another.
type Bucket struct {
	From   *int64 `json:"from,omitempty,string"` // epoch milliseconds; none: no beginning
	To     *int64 `json:"to,omitempty,string"`   // likewise; none: no end
	Target string `json:"target,omitempty"`      // if they are told apart
	Count  uint64 `json:"count,string"`
	Within uint64 `json:"within,string"` // by how much Count may be off, with a probability of 95 %; 0: exact
}

// A Pause is what a user holds back until somebody resumes it.
type Pause struct {
	Kind  string `json:"kind"` // PauseTopic or PauseTarget
	Name  string `json:"name"`
	Who   string `json:"who,omitempty"`               // has paused it
	Why   string `json:"why,omitempty" wanted:"true"` // in words of theirs
	Since int64  `json:"since,omitempty"`             // epoch milliseconds
}

// The kinds of a [Pause].
const (
	PauseTopic  = "topic"  // a delay topic: what came by it, whatever its targets; records are still taken in
	PauseTarget = "target" // what goes to it, whatever it came by
)

// A PauseChange says what came of a pause or a resume.
type PauseChange struct {
	Changed bool `json:"changed"` // false: it was so before
	// Was goes with a pause that changed nothing: the one that stands, with its own who, why and since.
	Was *Pause `json:"was,omitempty"`
}

// A Place is a delay topic or a target, with what is pending there.
type Place struct {
	Name    string `json:"name"`
	Pending uint64 `json:"pending,string"`
	Within  uint64 `json:"within,string"`   // by how much Pending may be off, with a probability of 95 %; 0: exact
	Pause   *Pause `json:"pause,omitempty"` // nil: it is not paused
}

// Places are delay topics or targets, by name.
type Places struct {
	Index  uint64  `json:"index,string"` // of the log
	Places []Place `json:"places"`
}

// An Explanation is all that a node knows of an id, as far as it has applied the log: a follower can be a
// moment behind.
type Explanation struct {
	Topic        string `json:"topic"`
	ID           string `json:"id"`
	Node         string `json:"node"`                 // who says so
	AppliedIndex uint64 `json:"applied_index,string"` // as of this entry of the log
	Cluster      string `json:"cluster"`              // in hexadecimal; a slash and a seq behind it make delivered-seq

	Waiting    *ExplainedMessage `json:"waiting,omitempty"`  // the newest with the id that has not ended; nil: none
	Events     []ExplainedEvent  `json:"events"`             // oldest first
	KnownSince int64             `json:"known_since,string"` // what ended before may be forgotten; 0: nothing was ever forgotten
	Words      []string          `json:"words"`              // all of it, a line each
}

// An ExplainedMessage is one that has not ended.
type ExplainedMessage struct {
	Seq     uint64 `json:"seq,string"`
	Due     int64  `json:"due,string"` // epoch milliseconds
	Target  string `json:"target"`
	Expires int64  `json:"expires,omitempty,string"` // epoch milliseconds; 0: never
	State   string `json:"state"`                    // waiting, paused, held, on-its-way or expired
}

// An ExplainedEvent is the end of one message, or an operation that took no effect.
type ExplainedEvent struct {
	What      string `json:"what"`                     // OutcomeDelivered and so on
	Seq       uint64 `json:"seq,omitempty,string"`     // of the message; 0 of what was refused
	By        uint64 `json:"by,omitempty,string"`      // of replaced: the message in its place
	Due       int64  `json:"due,string"`               // epoch milliseconds
	At        int64  `json:"at,string"`                // when it happened, likewise
	Target    string `json:"target"`                   // where it went, or would have gone
	Partition *int32 `json:"partition,omitempty"`      // as of an Outcome
	Offset    *int64 `json:"offset,omitempty,string"`  // nil as well where Kafka did not tell
	Late      *int64 `json:"late_ms,omitempty,string"` // of delivered: milliseconds between Due and At
}

// A Status is what a node tells of itself and of its cluster as it knows it. Nodes tell more than this,
// for those who run them. Its numbers are numbers in JSON.
type Status struct {
	Node      string   `json:"node"`
	State     string   `json:"state"`  // leader, follower or candidate; unborn, replaced or failed
	Leader    string   `json:"leader"` // "": unknown
	Term      uint64   `json:"term"`
	NotReady  string   `json:"not_ready,omitempty"`  // why the node does not serve yet; "": it does
	Pending   uint64   `json:"pending"`              // messages that wait
	OldestDue int64    `json:"oldest_due,omitempty"` // of them, epoch milliseconds; 0: none waits
	Lag       *int64   `json:"lag,omitempty"`        // records of delay topics not read yet; nil: not known
	Parked    []string `json:"parked,omitzero"`      // targets that cannot be written to; nil: not known
	Paused    []Pause  `json:"paused,omitempty"`
	Problems  []string `json:"problems"` // what keeps the node from its work
	Routes    []string `json:"routes"`   // patterns of the delay topics
	Level     struct {
		InForce    uint32 `json:"in_force"`   // in the cluster; 0: not known yet
		Understood uint32 `json:"understood"` // by the program of this node, at most
	} `json:"feature_level"`
	Members []struct {
		ID  string `json:"id"`
		API string `json:"api"` // host:port
	} `json:"members"`
}

// decode reads an answer. What lacks a field that every node writes is of somebody else.
func decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(text, &fields) // what is no object has none
	for _, name := range marks(into) {
		if _, is := fields[name]; !is {
			return fmt.Errorf("it has no %s, is this the api address of a node?", name)
		}
	}
	return nil
}

// marks returns the fields by which an answer of a node of any version is known.
func marks(into any) []string {
	switch into.(type) {
	case *Answer:
		return []string{"code", "topic", "id", "seq"}
	case *BatchAnswer:
		return []string{"answers"}
	case *PauseChange:
		return []string{"changed"}
	case *Operation:
		return []string{"verb", "state"}
	case *Operations:
		return []string{"operations"}
	case *Page:
		return []string{"messages"}
	case *DeadLetterPage:
		return []string{"dead_letters"}
	case *DeadLetter:
		return []string{"topic", "offset"}
	case *Count:
		return []string{"count"}
	case *Histogram:
		return []string{"buckets"}
	case *Places:
		return []string{"places"}
	case *Explanation:
		return []string{"events"}
	case *Status:
		return []string{"node"}
	}
	return []string{"index"} // of a Life or a Finding
}
