package deliver

import (
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

// end returns the outcome with what it says of the message itself filled in.
func (o *outgoing) end(outcome outcomes.Outcome) raftfsm.Ended {
	outcome.Name = name.Of(o.message.Origin.Topic, o.message.ID)
	outcome.Seq, outcome.Due = o.ref.Seq, o.ref.Due
	return outcome
}
