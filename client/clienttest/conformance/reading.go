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
			places, err := s.Targets(s.ctx)
			at := slices.IndexFunc(places.Places, func(p client.Place) bool { return p.Name == s.Target() })
			if err != nil || at < 0 || places.Places[at].Pending+places.Places[at].Within < many {
				s.Errorf("%+v, %v", places, err)
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
		{"what is known is told", func(s *scene) {
			_, err := s.Get(s.ctx, s.topic, "never was")
			s.refused("unknown", err, client.ErrNotFound)
			first := s.soon("a/b ..")
			e, err := s.Explain(s.ctx, s.topic, "a/b ..")
			if err != nil || e.Waiting == nil || e.Waiting.Seq != first.Seq || e.Waiting.State != client.StateWaiting || len(e.Events) != 0 || len(e.Words) == 0 || len(e.Cluster) != 32 {
				s.Errorf("%+v, %v", e, err)
			}
			s.expectArrived(65*time.Second, "value of a/b ..")
			e, err = s.Explain(s.ctx, s.topic, "a/b ..")
			if err != nil || e.Waiting != nil || len(e.Events) != 1 || e.Events[0].What != client.OutcomeDelivered || e.Events[0].Late == nil {
				s.Errorf("%+v, %v", e, err)
			}
			if seq := header(s.records(s.Target())[0], client.HeaderDeliveredSeq); seq != fmt.Sprintf("%s/%d", e.Cluster, first.Seq) {
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
