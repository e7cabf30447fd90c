package brokertest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
)

// applied writes down what a command of the log has done, when the first node applies it. The store
// is nil while the node is being opened, or ended.
func (o *observer) applied(store *storage.Store, command raftfsm.Command, result raftfsm.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if result.Index <= o.seen {
		return // by another node, or at a restart
	}
	o.seen = result.Index
	log, costs := &o.ledger.Log, &o.ledger.Costs
	claim := func(through int64) {
		log.Claim(ledger.Claim{Index: result.Index, At: time.Now(), Through: through})
	}
	entry := logEntry{log: log, index: result.Index, next: result.FirstSeq}
	switch c := command.(type) {
	case raftfsm.Ingest:
		log.Time(c.Time)
		claim(c.ClaimThrough)
		for i, part := range c.Parts {
			if !result.PartsApplied[i] {
				continue
			}
			for _, e := range part.Entries {
				entry.accept(e, false)
			}
			if len(part.Operations) > 0 {
				entry.operate(part.Operations, answersOf(result, i))
			}
		}
	case raftfsm.Operate:
		log.Time(c.Time)
		entry.operate(c.Operations, answersOf(result, 0))
	case raftfsm.Ack:
		log.Time(c.Time)
		for _, end := range c.Ended {
			if end.Kind == outcomes.Expired {
				log.Expire(end.Seq, result.Index)
			}
		}
		for _, run := range c.Runs {
			for seq := run.First; seq <= run.Last; seq++ {
				log.Ack(seq, time.Now())
			}
			log.Kill(run.First, run.Last)
		}
		return // which moves no mark
	case raftfsm.Replace:
		log.Time(c.Time)
		for i, e := range c.Entries {
			if result.PartsApplied[i] {
				log.Kill(c.Kills[i], c.Kills[i])
				entry.accept(e, true)
			}
		}
	case raftfsm.RaiseLevel:
		o.level = max(o.level, c.Level)
	case raftfsm.ClaimCommand:
		log.Time(c.Time)
		costs.Claims++
		if o.level >= storage.LevelTwo { // before, it names all holds each time
			costs.ClaimBytes += int64(c.Size())
		}
		o.hold(c.Claim.Holds, slices.DeleteFunc(slices.Collect(maps.Keys(o.held)), func(target string) bool {
			return slices.ContainsFunc(c.Claim.Holds, func(h storage.Hold) bool { return h.Target == target })
		}))
		claim(c.Claim.Through)
	case raftfsm.ChangeClaim:
		log.Time(c.Time)
		costs.Claims++
		costs.ClaimBytes += int64(c.Size())
		o.hold(c.Set, c.Lift)
		claim(c.Through)
	case raftfsm.Pause:
		log.Time(c.Time)
		if c.Kind == pause.Target {
			log.Pause(c.Name, result.Index)
		}
	case raftfsm.Resume:
		log.Time(c.Time)
	default:
		return
	}
	if store != nil {
		o.marked(result.Index, store)
	}
}

// levelRaised returns the highest feature level that a command of the log has raised the cluster to; 0: none has.
func (o *observer) levelRaised() storage.Level {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.level
}

// A logEntry writes down what one command has done with messages.
type logEntry struct {
	log   *ledger.Log
	index uint64
	next  uint64 // seq of what is accepted next
}

func (l *logEntry) accept(e storage.Entry, letter bool) {
	a := l.acceptance(e)
	a.Letter = letter
	l.log.Accept(a)
}

// acceptance returns that of the next entry.
func (l *logEntry) acceptance(e storage.Entry) ledger.Acceptance {
	m := messageOf(e)
	m.Seq = l.next
	l.next++
	return ledger.Acceptance{Message: m, Index: l.index, At: time.Now(), ID: idOf(e), Expires: e.Expires}
}

func idOf(e storage.Entry) ledger.ID { return ledger.ID{Topic: e.Topic, Text: e.ID} }

// operate takes no answers where no operation names an id: then all are accepted.
func (l *logEntry) operate(operations []raftfsm.Operation, answers []raftfsm.Answer) {
	for i, op := range operations {
		answer := raftfsm.Answer{Code: raftfsm.Scheduled}
		if i < len(answers) {
			answer = answers[i]
		}
		if answer.Again {
			continue // it was done before
		}
		switch answer.Code {
		case raftfsm.WasCancelled:
			l.log.End(answer.Seq, l.index)
		case raftfsm.Superseded:
			if op.Verb == raftfsm.Change {
				l.log.Change(answer.Before, l.acceptance(op.Entry))
				break
			}
			l.log.End(answer.Before, l.index)
			l.accept(op.Entry, false)
		case raftfsm.Scheduled:
			l.accept(op.Entry, false)
		default:
			l.refuse(op, answer)
		}
	}
}

// refuse writes down what had no effect.
func (l *logEntry) refuse(op raftfsm.Operation, answer raftfsm.Answer) {
	if op.Verb == raftfsm.Schedule {
		l.log.Refuse(messageOf(op.Entry).Identity)
		return
	}
	switch answer.Code {
	case raftfsm.TooLate, raftfsm.NotFound, raftfsm.AlreadyCancelled:
		l.log.Deny(idOf(op.Entry), 0, l.index)
	case raftfsm.Conflict:
		if op.If == raftfsm.Present || op.If == raftfsm.Exactly && op.Seq != 0 {
			l.log.Deny(idOf(op.Entry), op.Seq, l.index)
		}
	}
}

// answersOf returns what came of the operations of a part; nothing where none named an id.
func answersOf(result raftfsm.Result, part int) []raftfsm.Answer {
	if part < len(result.Answers) {
		return result.Answers[part]
	}
	return nil
}

// marked writes down the marks after a log entry. The writer of the store is here: it is what the
// entry has made of it.
func (o *observer) marked(index uint64, store *storage.Store) {
	var holds []ledger.Hold
	for _, h := range store.Holds() {
		holds = append(holds, ledger.Hold{Target: h.Target, Through: h.Through, Mark: ledger.Mark(h.Mark)})
	}
	for _, h := range store.TopicHolds() {
		holds = append(holds, ledger.Hold{DelayTopic: h.Topic, Through: h.Through, Mark: ledger.Mark(h.Mark)})
	}
	o.ledger.Log.Marked(index, time.Now(), ledger.Mark(store.Claim().Mark), holds)
}

// hold notes that a claim has set some holds and lifted others, of which what waits will be read.
func (o *observer) hold(set []storage.Hold, lifted []string) {
	for _, h := range set {
		if _, held := o.held[h.Target]; !held {
			o.held[h.Target] = time.Time{}
			o.ledger.Costs.Parked++
		}
	}
	for _, target := range lifted {
		o.catchUp(o.held[target])
		delete(o.held, target)
	}
}

// told notes what Kafka says of topics that are held, or of others.
func (o *observer) told(topics []string, counts []deliver.PartitionCount) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, topic := range topics {
		switch since, held := o.held[topic]; {
		case !held:
		case counts[i].Err != nil:
			o.held[topic] = time.Time{}
		case since.IsZero():
			o.held[topic] = time.Now()
		}
	}
}

// catchUp notes that what waits is read for a target that comes back, and that Kafka has told of since then; zero: not known.
// Those that come back within 50 ms are read for together, and so are those that Kafka had told of when it was begun to read,
// however long it takes to lift their holds: one scan for each is what the bound is to find.
func (o *observer) catchUp(since time.Time) {
	const apart, takes = 50 * time.Millisecond, 10 * time.Second
	switch ago := time.Since(o.caughtUp); {
	case ago < apart:
	case ago < takes && !since.IsZero() && !since.After(o.caughtUp):
	default:
		o.caughtUp = time.Now()
		o.ledger.Costs.CatchUps += int64(len(o.ledger.Log.Accepted))
	}
}

// sent writes down that a node hands a message to Kafka; dead letters do not say which they are.
func (o *observer) sent(node string, d deliver.Delivery) {
	o.mu.Lock()
	o.tryAgain(d.Topic)
	o.mu.Unlock()
	for _, h := range d.Headers {
		if h.Key != client.HeaderDeliveredSeq {
			continue
		}
		_, text, _ := strings.Cut(string(h.Value), "/")
		if seq, err := strconv.ParseUint(text, 10, 64); err == nil {
			o.mu.Lock()
			o.ledger.Log.Send(ledger.Sending{Seq: seq, Node: node, At: time.Now()})
			o.mu.Unlock()
		}
	}
}

// tryAgain notes that a target may be on trial: what waits for it is read then, until it fails once more. While that
// is claimed already, from the trial before, no claim tells of it.
func (o *observer) tryAgain(target string) {
	if o.failing[target] {
		o.catchUp(time.Time{})
	}
	delete(o.failing, target)
}

// failed writes down that a message was not written, or that it is not known.
func (o *observer) failed(target string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing[target] = true
}

// messageOf tells what an entry is.
func messageOf(e storage.Entry) ledger.Message {
	m, err := message.FromEntry(&e)
	return ledger.Message{
		Identity: ledger.Identity{Origin: m.Origin.String(), Value: string(m.Value)},
		Target:   e.Target, Due: e.Due, Seq: e.Seq, Unreadable: err != nil, Number: changeOf(m.Headers),
	}
}
