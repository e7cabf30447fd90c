package deliver

import (
	"slices"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// isTold reports whether the log is told what became of the message: it has an id of its user's choice,
// and the cluster keeps such things. A dead letter has none: it ended when it became one.
func (p *Publisher) isTold(o *outgoing) bool {
	return o.message.ID != "" && !o.deadLetter && p.cfg.Store.Level() >= storage.LevelThree
}

// mayExpire reports whether the message is not to be sent from some time on. A dead letter is always
// written.
func (o *outgoing) mayExpire() bool { return o.message.Expires != 0 && !o.deadLetter }

// hasExpired reports whether that time has come, given that of expiry.
func (o *outgoing) hasExpired(at int64) bool { return o.mayExpire() && o.message.Expires <= at }

// expiry returns the time by which messages expire, epoch milliseconds: the leader's clock, or the time
// of the log where that is ahead. Whoever asks about a message is answered by the log's.
func (p *Publisher) expiry() int64 { return max(p.now(), p.cfg.Store.Time()) }

// expire ends those of the first n ready messages that have expired, and returns how many these
// were. It is called before each try and before each dead letter is made: invariant 12.
func (l *lane) expire(n int) (gone int) {
	if !slices.ContainsFunc(l.ready[:n], (*outgoing).mayExpire) {
		return 0
	}
	at := l.p.expiry()
	var seqs []uint64
	var told []raftfsm.Ended
	rest := l.ready[:0]
	for i, o := range l.ready {
		if i >= n || !o.hasExpired(at) {
			rest = append(rest, o)
			continue
		}
		seqs = append(seqs, o.ref.Seq)
		if l.p.isTold(o) {
			// As the log says of a message that has expired and is not dropped yet.
			told = append(told, o.end(outcomes.Outcome{Kind: outcomes.Expired, At: o.message.Expires}))
		}
		l.unload(o)
		if o.ref == l.health.oldest {
			l.health.backoff = 0 // it will never get through
		}
	}
	clear(l.ready[len(rest):]) // payloads
	l.ready = rest
	l.p.cfg.Count.Expired(len(seqs))
	l.p.acks.put(seqs, told...)
	return len(seqs)
}

// end returns the outcome with what it says of the message itself filled in.
func (o *outgoing) end(outcome outcomes.Outcome) raftfsm.Ended {
	outcome.Name = name.Of(o.message.Origin.Topic, o.message.ID)
	outcome.Seq, outcome.Due = o.ref.Seq, o.ref.Due
	return outcome
}
