package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/client"
)

// reading has the cases of what is told of what waits.
func reading() []Case {
	return []Case{
		{"lists are in order", func(s *scene) {
			for i, minutes := range []int{30, 10, 20} {
				r := s.request(fmt.Sprintf("%c-%d", 'a'+i%2, i), time.Duration(minutes)*time.Minute)
				if i == 2 {
					r.DeliverTo = s.Other()
				}
				s.schedule(r)
			}
			from, to := s.ms(15*time.Minute), s.ms(25*time.Minute)
			for want, f := range map[string]client.Filter{
				"b-1 a-2 a-0":  {},
				"a-2 a-0":      {Prefix: "a-"},
				"b-1 a-0":      {Target: s.Target()},
				"a-2":          {From: from, To: to},
				"a-2 a-0 ":     {From: from},
				"b-1 a-2":      {To: to},
				"b-1 a-2 a-0 ": {States: []string{client.StateWaiting, client.StateParked}},
				"":             {States: []string{client.StateExpired}},
				" ":            {States: []string{client.StateAside}},
			} {
				f.Topic = s.topic
				got := s.list(f)
				if strings.Join(got, " ") != strings.TrimSpace(want) {
					s.Errorf("%+v lists %q, want %q", f, got, want)
				}
				if c, err := s.Count(s.ctx, f); err != nil || c.Count != uint64(len(got)) && c.Exact || c.Index == 0 {
					s.Errorf("%+v counts %+v, %v, want %d", f, c, err, len(got))
				}
			}
			for _, f := range []client.Filter{{States: []string{"asleep"}}, {From: to, To: from}} {
				for _, err := range s.Messages(s.ctx, f) {
					s.refused("list", err, client.ErrBadRequest)
				}
				_, err := s.Count(s.ctx, f)
				s.refused("count", err, client.ErrBadRequest)
			}
			for range s.Messages(s.ctx, client.Filter{}) {
				break // one is enough
			}
		}},
		{"long lists have all", func(s *scene) {
			const many = 1200
			var requests []client.ScheduleRequest
			for i := range many {
				requests = append(requests, s.request(fmt.Sprintf("%04d", i), time.Hour+time.Duration(i%7)*time.Second))
			}
			for part := range slices.Chunk(requests, client.MostBatched) {
				items, err := s.ScheduleBatch(s.ctx, part)
				for _, item := range items {
					if item.Answer == nil {
						s.Fatalf("%+v", item.Problem)
					}
				}
				if err != nil {
					s.Fatalf("%v", err)
				}
			}
			listed := s.list(client.Filter{Topic: s.topic})
			slices.Sort(listed)
			if len(slices.Compact(listed)) != many {
				s.Errorf("%d are listed, want %d", len(listed), many)
			}
		}},
		{"a histogram counts by time", func(s *scene) {
			for i, minutes := range []int{10, 20, 20, 30} {
				r := s.request(fmt.Sprint(i), time.Duration(minutes)*time.Minute)
				if i == 3 {
					r.DeliverTo = s.Other()
				}
				s.schedule(r)
			}
			h, err := s.Histogram(s.ctx, client.Filter{Topic: s.topic}, []int64{s.ms(15 * time.Minute), s.ms(25 * time.Minute)}, true)
			var got []string
			for _, b := range h.Buckets {
				got = append(got, fmt.Sprintf("%v-%v %s %d", b.From != nil, b.To != nil, b.Target, b.Count))
			}
			want := []string{"false-true " + s.Target() + " 1", "true-true " + s.Target() + " 2", "true-false " + s.Other() + " 1"}
			if err != nil || h.Pending < 4 || h.Exact && !slices.Equal(got, want) {
				s.Errorf("%+v, %v, want %q", h, err, want)
			}
			_, err = s.Histogram(s.ctx, client.Filter{}, []int64{5, 2}, false)
			s.refused("falling bounds", err, client.ErrBadRequest)
		}},
		{"places are told", func(s *scene) {
			s.long("a")
			topic, target := client.Pause{Kind: client.PauseTopic, Name: s.topic, Why: "stock-taking"}, client.Pause{Kind: client.PauseTarget, Name: s.Other(), Why: "too many"}
			for _, p := range []client.Pause{topic, target} {
				if _, err := s.Pause(s.ctx, p); err != nil {
					s.Fatalf("%v", err)
				}
			}
			check := func(what string, places client.Places, err error, want client.Place) {
				at := slices.IndexFunc(places.Places, func(p client.Place) bool { return p.Name == want.Name })
				if err != nil || places.Index == 0 || at < 0 {
					s.Fatalf("%s: %+v, %v, want %s among them", what, places, err, want.Name)
				}
				if p := places.Places[at]; p.Within == 0 && p.Pending != want.Pending || (p.Pause == nil) != (want.Pause == nil) || p.Pause != nil && (p.Pause.Why != want.Pause.Why || p.Pause.Since == 0) {
					s.Errorf("%s: %+v, want %+v", what, p, want)
				}
			}
			topics, err := s.Topics(s.ctx)
			check("topic", topics, err, client.Place{Name: s.topic, Pending: 1, Pause: &topic})
			targets, err := s.Targets(s.ctx)
			check("target", targets, err, client.Place{Name: s.Target(), Pending: 1})
			check("paused target", targets, err, client.Place{Name: s.Other(), Pause: &target})
			for _, p := range []client.Pause{topic, target} {
				if _, err := s.Resume(s.ctx, p); err != nil {
					s.Errorf("%v", err)
				}
			}
		}},
		{"what is known is told", func(s *scene) {
			_, err := s.Get(s.ctx, s.topic, "never was")
			s.refused("unknown", err, client.ErrNotFound)
			first := s.soon("a/b ..")
			s.world.Advance(time.Second) // the node that is asked may follow
			e, err := s.Explain(s.ctx, s.topic, "a/b ..")
			if err != nil || e.Waiting == nil || e.Waiting.Seq != first.Seq || e.Waiting.State != client.StateWaiting || len(e.Events) != 0 || len(e.Words) == 0 || len(e.Cluster) != 32 {
				s.Errorf("%+v, %v", e, err)
			}
			s.expectArrived(65*time.Second, "value of a/b ..")
			e, err = s.Explain(s.ctx, s.topic, "a/b ..")
			if err != nil || e.Waiting != nil || len(e.Events) != 1 || e.Events[0].What != client.OutcomeDelivered || e.Events[0].Late == nil {
				s.Errorf("%+v, %v", e, err)
			}
			if seq := header(s.record(0), client.HeaderDeliveredSeq); seq != fmt.Sprintf("%s/%d", e.Cluster, first.Seq) {
				s.Errorf("delivered-seq is %s, the cluster %s", seq, e.Cluster)
			}
			status, err := s.Status(s.ctx)
			if err != nil || status.Node == "" || status.Leader == "" || status.Level.InForce < 4 || len(status.Routes) == 0 {
				s.Errorf("%+v, %v", status, err)
			}
			if life, err := s.Stale().Get(s.ctx, s.topic, "a/b .."); err != nil || len(life.Outcomes) != 1 {
				s.Errorf("stale: %+v, %v", life, err)
			}
		}},
	}
}

// list returns the ids of what the filter means.
func (s *scene) list(f client.Filter) (ids []string) {
	s.Helper()
	for m, err := range s.Messages(s.ctx, f) {
		if err != nil {
			s.Fatalf("%v", err)
		}
		ids = append(ids, m.ID)
	}
	return ids
}
