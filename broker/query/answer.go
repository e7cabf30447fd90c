package query

import (
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// A Page is a part of what is pending, all of one log index, in order of delivery. Like all answers it is
// read by programs of other versions: a field keeps its type. 64-bit numbers are texts, since many
// readers of JSON have no such numbers.
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
	Expires int64  `json:"expires,omitempty,string"` // epoch milliseconds
	Target  string `json:"target"`
	State   string `json:"state"` // waiting, parked, paused, claimed or expired
	From    string `json:"from"`  // topic/partition/offset of the record that it came with
	Size    int    `json:"size"`  // as it is stored, bytes
	// Unreadable: what is stored is damaged, or of a newer version. Topic, ID and From may be missing.
	Unreadable bool     `json:"unreadable,omitempty"`
	Payload    *Payload `json:"payload,omitempty"` // if it was asked for
}

// A Payload is the record as it came. Bytes are base64 in JSON.
type Payload struct {
	Key     []byte   `json:"key"`
	Value   []byte   `json:"value"`
	Headers []Header `json:"headers"`
}

// A Header is one of a record.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// messageOf decodes what storage has listed.
func messageOf(l *storage.Listed) (Message, message.Message, error) {
	m := Message{
		Topic: l.Topic, ID: l.ID, Chosen: l.ID != "", Seq: l.Seq, Due: l.Due, Expires: l.Expires,
		Target: l.Target, State: l.Standing.String(), Size: l.Size,
	}
	decoded, err := message.FromEntry(&storage.Entry{Due: l.Due, Seq: l.Seq, Target: l.Target, Topic: l.Topic, ID: l.ID, Expires: l.Expires, Body: l.Body})
	if err != nil {
		m.Unreadable = true
		return m, decoded, err
	}
	m.Topic, m.ID, m.Chosen, m.From = decoded.Origin.Topic, decoded.Name(), decoded.ID != "", decoded.Origin.String()
	return m, decoded, nil
}

func payloadOf(m *message.Message) *Payload {
	p := &Payload{Key: m.Key, Value: m.Value, Headers: make([]Header, len(m.Headers))}
	for i, h := range m.Headers {
		p.Headers[i] = Header(h)
	}
	return p
}

// A Life is what is known of an id at one log index.
type Life struct {
	Index    uint64    `json:"index,string"`
	Message  *Message  `json:"message,omitempty"` // the newest that is pending
	Outcomes []Outcome `json:"outcomes"`          // of those before it, the oldest first
	// Since: outcomes from before may have been forgotten, epoch milliseconds; 0: none were.
	Since int64 `json:"since,string"`
}

// An Outcome is what became of a message that had the id, or of an operation that was refused.
type Outcome struct {
	Kind      string `json:"kind"`                 // delivered, dead-lettered, expired, cancelled, replaced or refused
	Seq       uint64 `json:"seq,string,omitempty"` // of the message; none: refused
	By        uint64 `json:"by,string,omitempty"`  // replaced: the seq of its successor
	Due       int64  `json:"due,string"`           // epoch milliseconds
	At        int64  `json:"at,string"`            // when it ended, likewise
	Target    string `json:"target"`
	Partition *int32 `json:"partition,omitempty"`     // of what went somewhere
	Offset    *int64 `json:"offset,omitempty,string"` // likewise, where it is known
}

func outcomeOf(o outcomes.Outcome) Outcome {
	told := Outcome{Kind: kindOf(o.Kind), Seq: o.Seq, By: o.By, Due: o.Due, At: o.At, Target: o.Target}
	if o.Kind == outcomes.Delivered || o.Kind == outcomes.DeadLettered {
		told.Partition = &o.Partition
		if o.Offset >= 0 {
			told.Offset = &o.Offset
		}
	}
	return told
}

func kindOf(k outcomes.Kind) string {
	switch k {
	case outcomes.Delivered:
		return "delivered"
	case outcomes.DeadLettered:
		return "dead-lettered"
	case outcomes.Expired:
		return "expired"
	case outcomes.Cancelled:
		return "cancelled"
	case outcomes.Replaced:
		return "replaced"
	case outcomes.Refused:
		return "refused"
	}
	return "unknown"
}
