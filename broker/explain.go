package broker

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
)

// An Explanation is what a node knows of an id within its delay topic, in numbers for programs and in
// words for people. Times are epoch milliseconds; what has 64 bits is a text in JSON.
type Explanation struct {
	Topic        string `json:"topic"`
	ID           string `json:"id"`
	Node         string `json:"node"`                 // who says so
	AppliedIndex uint64 `json:"applied_index,string"` // as of this entry of the log
	Cluster      string `json:"cluster"`              // in hexadecimal; a slash and a seq behind it make delivered-seq

	Waiting    *Waiting    `json:"waiting,omitempty"`  // the newest message with the id that has not ended; nil: none
	Events     []LifeEvent `json:"events"`             // oldest first
	KnownSince int64       `json:"known_since,string"` // what ended before may be forgotten; 0: nothing was ever forgotten
	Words      []string    `json:"words"`              // all of it, a line each
}

// A Waiting is a message that has not ended.
type Waiting struct {
	Seq     uint64 `json:"seq,string"`
	Due     int64  `json:"due,string"`
	Target  string `json:"target"`
	Expires int64  `json:"expires,omitempty,string"` // 0: never
	State   string `json:"state"`                    // one of the States

	topic  string // the delay topic that holds it, "" if none does (storage.Found)
	isPast bool   // Expires is by the clock of this node
	isOut  bool   // it has expired, but was claimed before: a try may be on its way
}

// The states of a message that has not ended.
const (
	StateWaiting = "waiting"    // for its time
	StatePaused  = "paused"     // its delay topic or its target is
	StateHeld    = "held"       // its target could not be written to, or catches up since
	StateOnWay   = "on-its-way" // it can be neither cancelled nor replaced any more
	StateExpired = "expired"    // no try begins any more, and it ends when its turn comes
)

// A LifeEvent is the end of one message, or a record that took no effect.
type LifeEvent struct {
	What      string `json:"what"`                 // delivered, dead-lettered, expired, cancelled, replaced or refused
	Seq       uint64 `json:"seq,omitempty,string"` // of the message; 0 of what was refused
	By        uint64 `json:"by,omitempty,string"`  // of replaced: the message in its place
	Due       int64  `json:"due,string"`
	At        int64  `json:"at,string"`                // when it happened, by the leader's clock
	Target    string `json:"target"`                   // where it went, or would have gone
	Partition *int32 `json:"partition,omitempty"`      // where it went; of refused, in Topic, which record had no effect
	Offset    *int64 `json:"offset,omitempty,string"`  // likewise; nil as well where Kafka did not tell
	Late      *int64 `json:"late_ms,omitempty,string"` // of delivered: milliseconds between Due and At
}

// explainTries bounds how often an explanation begins anew since the schedule has changed meanwhile.
const explainTries = 10

// explainPatience bounds how long an explanation waits for the log.
const explainPatience = time.Second

// Explain returns what this node knows of an id: what it has applied, which on a follower can be a
// moment behind. It may wait for the disk, and the leader waits for the log first, which moves the state's time: a second
// at most, for it tells what it has also where nothing can be committed. Below feature level three nothing is known (ErrNoIDs).
func (b *Broker) Explain(ctx context.Context, topic, id string) (Explanation, error) {
	store := b.node.Store()
	if b.leads() {
		waiting, cancel := context.WithTimeout(ctx, explainPatience)
		if err := b.queries.Barrier(waiting); err != nil {
			b.log.Debug("explaining what is applied here", "error", err)
		}
		cancel()
	}
	if !store.IDsOpen() {
		return Explanation{}, noIDs(store.Level())
	}
	var e Explanation
	for range explainTries {
		e = Explanation{Topic: topic, ID: id, Node: b.node.Status().Node, AppliedIndex: b.node.Status().AppliedIndex, Events: []LifeEvent{}}
		found, ok, err := store.Lookup(topic, id)
		if err != nil {
			return Explanation{}, fmt.Errorf("explain: %w", err)
		}
		if ok {
			e.Waiting = waiting(store, found)
			e.Waiting.isPast = found.Expires != 0 && found.Expires <= b.now().UnixMilli()
		}
		for _, o := range store.Life(topic, id) {
			e.Events = append(e.Events, lifeEvent(o))
		}
		e.KnownSince = store.OutcomesSince()
		if b.node.Status().AppliedIndex == e.AppliedIndex {
			break
		}
	}
	if w := e.Waiting; w != nil && slices.ContainsFunc(e.Events, func(l LifeEvent) bool { return l.Seq == w.Seq }) {
		e.Waiting = nil // it has ended since it was looked up
	}
	clusterID := store.State().ClusterID
	e.Cluster = hex.EncodeToString(clusterID[:])
	e.Words = e.words(store.Pauses())
	if e.Waiting == nil && len(e.Events) == 0 {
		if why := b.Impossible(topic, id); why != "" {
			e.Words = append(e.Words, why)
		}
	}
	return e, nil
}

// Impossible returns in words why no message can come by the topic that could be looked up by the id, or
// "" if one can. What came before the configuration was changed may be known nevertheless.
func (b *Broker) Impossible(topic, id string) string {
	if _, isDelayTopic := b.config.Route(topic); !isDelayTopic {
		return fmt.Sprintf("topic %q is no delay topic: no route has it, so no message comes by it; those of routes[].from are %s", topic, patterns(b.config.Routes))
	}
	if origin, ok := query.ParseOrigin(id); ok && origin.Topic == topic {
		return "this id names a message whose producer gave it none: `carillon get` finds it while it waits, and what became of it is not kept"
	}
	headers := []client.Header{{Key: client.HeaderCancel, Value: []byte("true")}, {Key: client.HeaderID, Value: []byte(id)}}
	if _, err := client.Parse(headers, 0); err != nil {
		return "no message can have this id: " + err.Error()
	}
	return ""
}

// noIDs says what to do before ids can be asked for.
func noIDs(level storage.Level) error {
	if level < storage.LevelThree {
		return fmt.Errorf("%w: they are from feature level 3 on, and the cluster is at level %d: upgrade all nodes and raise the level", ErrNoIDs, level)
	}
	return fmt.Errorf("%w yet: the cluster has come to feature level 3 a moment ago, and still reads the ids of messages that wait: ask again in some minutes", ErrNoIDs)
}

func waiting(store *storage.Store, f storage.Found) *Waiting {
	w := &Waiting{Seq: f.Seq, Due: f.Due, Target: f.Target, Expires: f.Expires, State: StateWaiting, topic: f.Topic}
	_, isHeld := store.Hold(pause.Target, f.Target)
	switch {
	case f.Expires != 0 && f.Expires <= store.Time():
		w.State, w.isOut = StateExpired, store.Claimed(f.Ref, f.Topic, f.Target)
	case store.Claimed(f.Ref, f.Topic, f.Target):
		w.State = StateOnWay
	case store.Paused(pause.Topic, f.Topic), store.Paused(pause.Target, f.Target):
		w.State = StatePaused
	case isHeld:
		w.State = StateHeld
	}
	return w
}

// eventNames are the names of what can happen, by kind.
var eventNames = [...]string{
	outcomes.Delivered: "delivered", outcomes.DeadLettered: "dead-lettered", outcomes.Expired: "expired",
	outcomes.Cancelled: "cancelled", outcomes.Replaced: "replaced", outcomes.Refused: "refused", outcomes.RefusedRecord: "refused",
}

func lifeEvent(o outcomes.Outcome) LifeEvent {
	l := LifeEvent{What: fmt.Sprintf("kind %d", o.Kind), Seq: o.Seq, By: o.By, Due: o.Due, At: o.At, Target: o.Target}
	if int(o.Kind) < len(eventNames) {
		l.What = eventNames[o.Kind]
	}
	if o.Kind == outcomes.Delivered || o.Kind == outcomes.DeadLettered || o.Kind == outcomes.RefusedRecord {
		l.Partition = &o.Partition
		if o.Offset >= 0 {
			l.Offset = &o.Offset
		}
	}
	if o.Kind == outcomes.Delivered {
		l.Late = new(max(o.At-o.Due, 0))
	}
	return l
}

// words tells the explanation in sentences.
func (e *Explanation) words(pauses []pause.Pause) (lines []string) {
	for _, l := range e.Events {
		lines = append(lines, l.words(e.Topic))
	}
	if e.Waiting != nil {
		return append(lines, e.Waiting.words(pauses))
	}
	if len(lines) > 0 {
		return append(lines, "no message waits under this id")
	}
	if e.KnownSince == 0 {
		return []string{"no message had this id since ids are served, as far back as feature level 3"}
	}
	return []string{"no message waits under this id, and none has ended since " + moment(e.KnownSince) + "; what ended before may be forgotten"}
}

func (l *LifeEvent) words(topic string) string {
	message := fmt.Sprintf("message %d, due %s for %s, ", l.Seq, moment(l.Due), l.Target)
	switch l.What {
	case eventNames[outcomes.Delivered]:
		return fmt.Sprintf("message %d, due %s, was delivered to %s at %s, %v late", l.Seq, moment(l.Due), l.place(l.Target), moment(l.At), time.Duration(*l.Late)*time.Millisecond)
	case eventNames[outcomes.DeadLettered]:
		return fmt.Sprintf("message %d, due %s, could not be delivered: it became a dead letter in %s at %s", l.Seq, moment(l.Due), l.place(l.Target), moment(l.At))
	case eventNames[outcomes.Expired]:
		return fmt.Sprintf("message %d, due %s, expired at %s: it was not delivered", l.Seq, moment(l.Due), moment(l.At))
	case eventNames[outcomes.Cancelled]:
		return message + "was cancelled at " + moment(l.At)
	case eventNames[outcomes.Replaced]:
		return fmt.Sprintf("%swas replaced by message %d at %s", message, l.By, moment(l.At))
	case eventNames[outcomes.Refused]:
		record := "a record"
		if l.Partition != nil {
			record = "the record " + l.place(topic)
		}
		return record + " had no effect at " + moment(l.At) + ", since its condition did not hold"
	}
	return message + l.What + " at " + moment(l.At)
}

// place is as much as is known of where in the topic it is.
func (l *LifeEvent) place(topic string) string {
	if l.Offset == nil {
		return fmt.Sprintf("%s/%d", topic, *l.Partition)
	}
	return fmt.Sprintf("%s/%d/%d", topic, *l.Partition, *l.Offset)
}

func (w *Waiting) words(pauses []pause.Pause) string {
	text := fmt.Sprintf("message %d, due %s for %s, ", w.Seq, moment(w.Due), w.Target)
	switch w.State {
	case StateExpired:
		text += "expired at " + moment(w.Expires) + ": it will not be delivered"
		if w.isOut {
			text += ", unless a try was on its way by then"
		}
		return text
	case StateOnWay:
		text += "is on its way: it can be neither cancelled nor replaced any more"
	case StateHeld:
		text += "waits, since its target could not be written to, or catches up"
	default:
		text += "waits"
	}
	for _, p := range pauses {
		if p.Kind == pause.Topic && p.Name == w.topic || p.Kind == pause.Target && p.Name == w.Target {
			text += fmt.Sprintf(", while the %s %s is paused, by %s since %s: %s", p.Kind, p.Name, p.Who, moment(p.Since), p.Why)
		}
	}
	if w.Expires != 0 {
		text += ", and expires at " + moment(w.Expires)
	}
	if w.isPast {
		text += ", which is past by the clock of this node: the time of the log decides, so ask the leader"
	}
	return text
}

// moment is a time as RFC 3339 has it.
func moment(millis int64) string {
	return time.UnixMilli(millis).UTC().Format("2006-01-02T15:04:05.000Z")
}
