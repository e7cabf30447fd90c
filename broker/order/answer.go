package order

import (
	"fmt"
	"time"

	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/outcomes"
)

// tell says what the log has answered about the id: what took effect is an Answer, the rest a Problem.
func tell(topic, id string, a raftfsm.Answer) (*client.Answer, *client.Problem) {
	answer := &client.Answer{Code: a.Code.String(), Topic: topic, ID: id, Seq: a.Seq, Before: a.Before, Outcome: outcomeOf(a.Outcome), Again: a.Again}
	problem := &client.Problem{Seq: a.Seq, Outcome: answer.Outcome, Since: a.Since}
	switch a.Code {
	case raftfsm.Scheduled, raftfsm.Superseded, raftfsm.WasCancelled, raftfsm.AlreadyCancelled:
		return answer, nil
	case raftfsm.Conflict:
		problem.Code = client.CodeConflict
		problem.Detail = fmt.Sprintf("the condition does not hold, nothing was done: message %d waits under %q of %s", a.Seq, id, topic)
		if a.Seq == 0 {
			problem.Detail = fmt.Sprintf("the condition does not hold, nothing was done: no message waits under %q of %s", id, topic)
		}
	case raftfsm.TooLate:
		problem.Code, problem.Detail = client.CodeTooLate, tooLate(a)
	case raftfsm.NotFound:
		problem.Code, problem.Detail = client.CodeNotFound, fmt.Sprintf("no message of %s has or had the id %q", topic, id)
		if a.Since != 0 {
			problem.Detail = fmt.Sprintf("no message of %s with the id %q is known: there is none now, and none has ended since %s", topic, id, moment(a.Since))
		}
	case raftfsm.KeyReused:
		problem.Code, problem.Field = client.CodeKeyReused, "idempotency_key"
		problem.Detail = "the idempotency key came before with another request: choose a new key for what is new, nothing was done"
	case raftfsm.Replayed:
		problem.Code, problem.Field = client.CodeReplayed, "again"
		problem.Detail = "the dead letter was replayed before, nothing was done: say again to replay it once more"
	default:
		problem.Code, problem.Detail = client.CodeInternal, fmt.Sprintf("the log answered %v", a.Code)
	}
	return nil, problem
}

func tooLate(a raftfsm.Answer) string {
	ended := fmt.Sprintf("too late: message %d ", a.Seq)
	o := a.Outcome
	if o == nil {
		o = new(outcomes.Outcome)
	}
	switch o.Kind {
	case outcomes.Delivered:
		return ended + fmt.Sprintf("was delivered to %s/%d at %s", o.Target, o.Partition, moment(o.At))
	case outcomes.DeadLettered:
		return ended + fmt.Sprintf("could not be delivered and became a dead letter at %s", moment(o.At))
	case outcomes.Expired:
		return ended + fmt.Sprintf("expired at %s", moment(o.At))
	case outcomes.Cancelled:
		return ended + fmt.Sprintf("was cancelled at %s", moment(o.At))
	}
	return ended + "is on its way to its target"
}

// outcomeOf is nil where none is known.
func outcomeOf(o *outcomes.Outcome) *client.Outcome {
	if o == nil {
		return nil
	}
	told := query.OutcomeOf(*o)
	return &told
}

// moment is a time as RFC 3339 has it.
func moment(millis int64) string {
	return time.UnixMilli(millis).UTC().Format("2006-01-02T15:04:05.000Z")
}
