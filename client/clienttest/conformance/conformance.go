// Package conformance says what a Carillon does, as programs see it: one suite that is run against the one in
// memory (package clienttest) and against a cluster of three nodes, so that both follow the same rules.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/client"
)

// A World is a Carillon with a Kafka and a time of its own.
type World interface {
	// Requests to any host are answered by its API.
	http.RoundTripper
	// Admin returns one that may do everything.
	Admin() *client.Admin
	// Produce gives a record to Kafka, and returns it as it lies there. It may be taken in later.
	Produce(r *client.Record) *client.Record
	// Now returns the time there.
	Now() time.Time
	// Advance lets time pass. What is due by then has been delivered when it returns, but for what was due
	// within the last second.
	Advance(d time.Duration)
	// Delivered returns what was delivered so far to any target, that of one target in order.
	Delivered() []*client.Record
}

// A Case is one thing that is to be so.
type Case struct {
	Name  string
	check func(s *scene)
}

// DelayTopic returns the delay topic of the case, whose target is the name without .delay, and which is to
// exist in Kafka before the case is run; so is Other's.
func (c Case) DelayTopic() string { return c.Target() + ".delay" }

// Target returns where messages of the case go that do not say otherwise.
func (c Case) Target() string { return strings.ReplaceAll(c.Name, " ", "-") }

// Other returns another target that messages of the case may go to.
func (c Case) Other() string { return c.Target() + "-2" }

// Run checks the case. The world may have others behind it; its clock goes on. A failure names the case.
func (c Case) Run(t testing.TB, w World) {
	t.Helper()
	c.check(&scene{TB: t, Case: c, world: w, Admin: w.Admin(), ctx: context.Background(), topic: c.DelayTopic(), from: len(w.Delivered())})
}

// Cases returns all there are.
func Cases() []Case {
	return slices.Concat(scheduling(), endings(), reading(), bulk(), refusals())
}

// A scene is a case that is run. Its checks go on after a failure where that makes sense.
type scene struct {
	testing.TB
	Case
	world World
	*client.Admin
	ctx   context.Context
	topic string
	from  int // how many records had been delivered before
}

// Errorf names the case.
func (s *scene) Errorf(format string, args ...any) {
	s.TB.Helper()
	s.TB.Errorf("%s: "+format, append([]any{s.Case.Name}, args...)...)
}

// Fatalf names the case.
func (s *scene) Fatalf(format string, args ...any) {
	s.TB.Helper()
	s.TB.Fatalf("%s: "+format, append([]any{s.Case.Name}, args...)...)
}

// at returns a time from now on in epoch milliseconds, as deliver_at takes it.
func (s *scene) at(d time.Duration) string { return fmt.Sprint(s.ms(d)) }

func (s *scene) ms(d time.Duration) int64 { return s.world.Now().Add(d).UnixMilli() }

// request is for a message with the id, due after that, with its id as the value.
func (s *scene) request(id string, after time.Duration) client.ScheduleRequest {
	return client.ScheduleRequest{Topic: s.topic, ID: id, DeliverAt: s.at(after), Value: client.Text("value of " + id)}
}

// schedule has a message wait, and returns the answer.
func (s *scene) schedule(r client.ScheduleRequest) client.Answer {
	s.Helper()
	a, err := s.Schedule(s.ctx, r)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return a
}

// soon has a message with the id wait for a minute, long a day.
func (s *scene) soon(id string) client.Answer {
	s.Helper()
	return s.schedule(s.request(id, time.Minute))
}
func (s *scene) long(id string) client.Answer {
	s.Helper()
	return s.schedule(s.request(id, 24*time.Hour))
}

func (s *scene) name(id string) client.Name { return client.Name{Topic: s.topic, ID: id} }

// produce gives a record to Kafka, and waits until it has been taken in.
func (s *scene) produce(value string, options ...client.Option) *client.Record {
	s.Helper()
	r := &client.Record{Topic: s.topic, Key: []byte("k"), Value: []byte(value), Timestamp: s.world.Now()}
	for _, option := range options {
		r.Headers = option(r.Headers)
	}
	produced := s.world.Produce(r)
	s.world.Advance(3 * time.Second)
	return produced
}

// life returns what is known of an id.
func (s *scene) life(id string) client.Life {
	s.Helper()
	life, err := s.Get(s.ctx, s.topic, id)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return life
}

// waits returns the message that waits under an id.
func (s *scene) waits(id string) client.Message {
	s.Helper()
	life := s.life(id)
	if life.Message == nil {
		s.Fatalf("no message waits under %q: %+v", id, life.Outcomes)
	}
	return *life.Message
}

// refused checks the error of a request, and returns the problem.
func (s *scene) refused(what string, err, want error) client.Problem {
	s.Helper()
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || !errors.Is(err, want) {
		s.Errorf("%s: error %v, want %v", what, err, want)
		return client.Problem{}
	}
	if p.Detail == "" || p.Status < 400 || p.Title == "" {
		s.Errorf("%s: the problem %+v says too little", what, p)
	}
	return *p
}

// arrived returns what was delivered to the target since the case began, as "value" each.
func (s *scene) arrived(target string) (values []string) {
	for _, r := range s.records(target) {
		values = append(values, string(r.Value))
	}
	return values
}

func (s *scene) records(target string) (records []*client.Record) {
	for _, r := range s.world.Delivered()[s.from:] {
		if r.Topic == target {
			records = append(records, r)
		}
	}
	return records
}

// record returns one that was delivered to the target of the case.
func (s *scene) record(i int) *client.Record {
	s.Helper()
	rs := s.records(s.Target())
	if i >= len(rs) {
		s.Fatalf("%d records were delivered, want %d at least", len(rs), i+1)
	}
	return rs[i]
}

// expectArrived checks what was delivered to the target of the case, after some time.
func (s *scene) expectArrived(after time.Duration, want ...string) {
	s.Helper()
	s.world.Advance(after)
	if got := s.arrived(s.Target()); !slices.Equal(got, want) {
		s.Errorf("delivered were %q, want %q", got, want)
	}
}

// expectOutcomes checks what is known to have become of messages with the id: kinds, oldest first.
func (s *scene) expectOutcomes(id string, want ...string) []client.Outcome {
	s.Helper()
	var kinds []string
	life := s.life(id)
	for _, o := range life.Outcomes {
		kinds = append(kinds, o.Kind)
	}
	if !slices.Equal(kinds, want) {
		s.Fatalf("outcomes of %s are %q, want %q", id, kinds, want)
	}
	return life.Outcomes
}

// header returns a header of a delivered record.
func header(r *client.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
