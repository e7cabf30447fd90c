package clienttest

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/client"
)

// A started is what an idempotency key has started.
type started struct {
	request client.OperationRequest
	at      int // in Server.operations
}

// postOperation does at once what a cluster does in a while: an operation has ended when it is answered.
func (s *Server) postOperation(r *http.Request) (any, *client.Problem) {
	var request client.OperationRequest
	if p := read(r, &request, false); p != nil {
		return nil, p
	}
	f := request.Filter
	switch {
	case !slices.Contains([]string{client.OperationCancel, client.OperationChange, client.OperationNow, client.OperationReplay}, request.Verb):
		return nil, client.BadField("verb", request.Verb, "is none of cancel, change, now and replay")
	case request.Verb == client.OperationReplay && f.Prefix != "":
		return nil, client.BadField("filter.prefix", f.Prefix, "is of messages that wait: dead letters have none")
	case request.Verb == client.OperationReplay && len(f.States) > 0:
		return nil, client.BadField("filter.states", f.States[0], "is of messages that wait: dead letters have none")
	}
	if p := cmp.Or(request.CheckAll(s.now, mostDelay), request.Check()); p != nil {
		return nil, p
	}
	switch {
	case request.Verb != client.OperationReplay && f.Code != "":
		return nil, client.BadField("filter.code", f.Code, "is of dead letters: messages that wait have none")
	case request.Verb != client.OperationReplay && slices.Contains(f.States, client.StateAside):
		return nil, client.BadField("filter.states", client.StateAside, "is of dead letters, which operations pass over: leave it out")
	}
	if f.Topic != "" && !isDelayTopic(f.Topic) {
		return nil, client.BadField("filter.topic", f.Topic, "is no delay topic: those of clienttest end in "+delaySuffix)
	}
	if p := cmp.Or(checkFilter("filter.", f), s.checkGoal(&request)); p != nil {
		if p.Field == "filter.state" { // as a parameter is called, which may come several times
			p.Field = "filter.states"
		}
		return nil, p
	}
	o := client.Operation{
		Verb: request.Verb, State: client.OperationFinished, Filter: f, All: request.All, DryRun: request.DryRun, Reason: strings.TrimSpace(request.Reason), Rate: request.Rate,
		Change: request.Change, Again: request.Again, UpperSeq: s.seq, Started: s.now, Ended: s.now,
	}
	key := r.Header.Get("Idempotency-Key")
	if len(key) > client.MostKey {
		return nil, client.BadField("Idempotency-Key", key, fmt.Sprintf("has %d bytes: use %d at most", len(key), client.MostKey))
	}
	if before, ok := s.started[key]; ok && !o.DryRun {
		if !reflect.DeepEqual(before.request, request) {
			return nil, &client.Problem{Code: client.CodeKeyReused, Field: "Idempotency-Key", Value: key, Detail: "the idempotency key came before, with other content: nothing was done; choose another key"}
		}
		return s.operations[before.at], nil
	}
	if p := s.runOperation(&o); p != nil {
		return nil, p
	}
	if !o.DryRun {
		if key != "" {
			s.started[key] = started{request, len(s.operations)}
		}
		o.ID = strconv.Itoa(len(s.operations) + 1)
		s.operations = append(s.operations, o)
	}
	return o, nil
}

// checkGoal refuses a time or a target that no message may have.
func (s *Server) checkGoal(r *client.OperationRequest) *client.Problem {
	if r.Verb == client.OperationCancel {
		return nil
	}
	var said client.ScheduleRequest
	if c := r.Change; c != nil {
		said = client.ScheduleRequest{DeliverAt: c.DeliverAt, DeliverAfter: c.DeliverAfter, DeliverTo: c.DeliverTo}
	}
	if said.DeliverAt == "" && said.DeliverAfter == "" {
		said.DeliverAfter = "0"
	}
	in, p := parse(said.Instructions(), s.now)
	if p == nil {
		if wrong := s.check(&message{target: cmp.Or(in.To, r.Filter.Target), due: in.DueAt}); wrong != nil {
			p = wrong.asked(&said)
		}
	}
	switch {
	case p == nil:
	case p.Field == "deliver_to" && said.DeliverTo == "":
		p.Field, p.Value = "filter.target", r.Filter.Target
	default:
		p.Field = "change." + p.Field
	}
	return p
}

func (s *Server) runOperation(o *client.Operation) *client.Problem {
	var one func(*message) (client.Answer, *client.Problem)
	wanted := client.BulkChange{}
	if o.Change != nil {
		wanted = *o.Change
	}
	change := client.ChangeRequest{DeliverAt: wanted.DeliverAt, DeliverAfter: wanted.DeliverAfter, DeliverTo: wanted.DeliverTo}
	shift, p := wanted.ShiftBy()
	if p != nil {
		return p
	}
	switch o.Verb {
	case client.OperationReplay:
		return s.runReplay(o, wanted)
	case client.OperationCancel:
		one = func(m *message) (client.Answer, *client.Problem) {
			return s.carryOut(operation{verb: cancel, condition: client.Exactly, seq: m.seq, message: *m})
		}
	case client.OperationNow:
		one = func(m *message) (client.Answer, *client.Problem) {
			return s.deliverNow(m.name(), client.Exactly, m.seq)
		}
	case client.OperationChange:
		one = func(m *message) (client.Answer, *client.Problem) {
			each := change
			if wanted.Shift != "" {
				each.DeliverAt = rfc3339(max(m.planned+shift, 0))
			}
			return s.change(m.name(), client.Exactly, m.seq, each)
		}
	}
	for _, m := range s.meant(o.Filter) {
		o.Matched++
		if o.DryRun {
			continue
		}
		_, p := one(m)
		countFate(o, p)
	}
	return nil
}

func (s *Server) runReplay(o *client.Operation, wanted client.BulkChange) *client.Problem {
	for _, l := range slices.Backward(s.meantLetters(o.Filter)) {
		if l.Replayed && !o.Again {
			if !o.DryRun {
				o.TooLate++
			}
			continue
		}
		o.Matched++
		if o.DryRun {
			continue
		}
		_, p := s.replay(l, client.ReplayRequest{DeliverAt: wanted.DeliverAt, DeliverAfter: wanted.DeliverAfter, DeliverTo: wanted.DeliverTo, Again: o.Again})
		countFate(o, p)
	}
	return nil
}

// countFate notes what became of one that is meant.
func countFate(o *client.Operation, p *client.Problem) {
	switch {
	case p == nil:
		o.Done++
	case p.Code == client.CodeTooLate:
		o.TooLate++
	case p.Code == client.CodeNotFound:
		o.NotFound++
	default:
		o.Failed++
		o.Problem = p.Detail
	}
}

func (s *Server) getOperations(*http.Request) (any, *client.Problem) {
	all := append([]client.Operation{}, s.operations...)
	slices.Reverse(all)
	return client.Operations{Operations: all}, nil
}

func (s *Server) getOperation(r *http.Request) (any, *client.Problem) {
	id := r.PathValue("id")
	if number, err := strconv.ParseUint(id, 10, 64); err != nil || number == 0 {
		return nil, client.BadField("operation", id, "is no id of an operation: give the number that it was started with")
	}
	for _, o := range s.operations {
		if o.ID == id {
			return o, nil
		}
	}
	return nil, unknown("no operation %q is known", id)
}

// meantLetters returns those that the filter means, the newest first.
func (s *Server) meantLetters(f client.Filter) (found []*letter) {
	for _, l := range slices.Backward(s.letters) {
		isMeant := (f.Topic == "" || l.DelayTopic == f.Topic) && (f.Code == "" || l.Code == f.Code) && (f.Target == "" || l.Target == f.Target) && l.Time >= f.From && (f.To == 0 || l.Time < f.To)
		if isMeant {
			found = append(found, l)
		}
	}
	return found
}

func (s *Server) getLetters(r *http.Request) (any, *client.Problem) {
	q := asked(r, "topic", "code", "target", "from", "to", "limit", "cursor")
	f := q.filter()
	page := client.DeadLetterPage{DeadLetters: []client.DeadLetter{}}
	for _, l := range s.meantLetters(f) {
		told := l.DeadLetter
		told.Payload = nil
		page.DeadLetters = append(page.DeadLetters, told)
	}
	return page, q.problem
}

// theLetter is the dead letter of a path.
func (s *Server) theLetter(r *http.Request) (*letter, *client.Problem) {
	var numbers [2]int64
	for i, field := range []string{"partition", "offset"} {
		n, err := strconv.ParseInt(r.PathValue(field), 10, 64)
		if err != nil || n < 0 {
			return nil, client.BadField(field, r.PathValue(field), "is no number from 0 on: give it as the list of dead letters tells it")
		}
		numbers[i] = n
	}
	p := client.Position{Topic: r.PathValue("topic"), Partition: int32(numbers[0]), Offset: numbers[1]}
	if l := s.letterAt(p); l != nil {
		return l, nil
	}
	return nil, unknown("no dead letter lies at %v", p)
}

func (s *Server) getLetter(r *http.Request) (any, *client.Problem) {
	l, p := s.theLetter(r)
	if p != nil {
		return nil, p
	}
	return l.DeadLetter, nil
}

func (s *Server) postReplay(r *http.Request) (any, *client.Problem) {
	l, p := s.theLetter(r)
	if p != nil {
		return nil, p
	}
	var request client.ReplayRequest
	if p := read(r, &request, true); p != nil {
		return nil, p
	}
	return answered(s.replay(l, request))
}
