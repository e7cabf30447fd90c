package clienttest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/client"
)

// told is the message as the API tells it.
func (s *Server) told(m *message, payload bool) client.Message {
	t := client.Message{Topic: m.topic, ID: m.id, Chosen: m.chosen, Seq: m.seq, Due: m.due, Expires: m.expires, Target: m.target, State: s.stateOf(m), From: m.from, Size: sizeOf(&m.record)}
	if payload {
		t.Payload = payloadOf(&m.record)
	}
	return t
}

func (s *Server) stateOf(m *message) string {
	switch {
	case s.isExpired(m):
		return client.StateExpired
	case m.claimed:
		return client.StateClaimed
	case s.isPaused(m):
		return client.StatePaused
	}
	return client.StateWaiting
}

// parameters are those of a question; what is wrong with them is gathered.
type parameters struct {
	url.Values
	problem *client.Problem
}

// asked returns the parameters of a request, which may have these names.
func asked(r *http.Request, names ...string) *parameters {
	q := &parameters{Values: r.URL.Query()}
	for given, values := range q.Values {
		if given != "stale" && !slices.Contains(names, given) {
			q.problem = client.BadField(given, values[0], "is no parameter: there are "+strings.Join(names, ", "))
		}
	}
	return q
}

func (q *parameters) number(name string, usual int64) int64 {
	if !q.Has(name) {
		return usual
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil {
		q.problem = client.BadField(name, q.Get(name), "is no whole number of 64 bits; times are epoch milliseconds")
	}
	return n
}

var filterNames = [...]string{"topic", "prefix", "target", "from", "to", "state"}

func (q *parameters) filter() client.Filter {
	f := client.Filter{Topic: q.Get("topic"), Prefix: q.Get("prefix"), Target: q.Get("target"), Code: q.Get("code"), States: q.Values["state"], From: q.number("from", 0), To: q.number("to", 0)}
	if p := checkFilter("", f); p != nil {
		q.problem = p
	}
	return f
}

// counted is the filter of what is counted, which a cluster does without reading it all.
func (q *parameters) counted() client.Filter {
	f := q.filter()
	if strings.Contains(f.Prefix, "/") {
		q.problem = client.BadField("prefix", f.Prefix, "is of ids that nobody chose, which are not counted by what they begin with: list them")
	}
	return f
}

// checkFilter returns what is wrong with a filter, whose fields are told behind a prefix.
func checkFilter(prefix string, f client.Filter) *client.Problem {
	if p := cmp.Or(client.CheckMillis(prefix+"from", f.From), client.CheckMillis(prefix+"to", f.To)); p != nil {
		return p
	}
	for _, state := range f.States {
		if !slices.Contains([]string{client.StateWaiting, client.StateParked, client.StatePaused, client.StateClaimed, client.StateAside, client.StateExpired}, state) {
			return client.BadField(prefix+"state", state, "is none of waiting, parked, paused, claimed, aside and expired")
		}
	}
	if f.To != 0 && f.To <= f.From {
		return client.BadField(prefix+"to", strconv.FormatInt(f.To, 10), "is not after from")
	}
	return nil
}

// meant returns what is pending of what the filter means, in order of delivery.
func (s *Server) meant(f client.Filter) (found []*message) {
	for _, m := range s.sorted() {
		isMeant := (f.Topic == "" || m.topic == f.Topic) && strings.HasPrefix(m.id, f.Prefix) && (f.Target == "" || m.target == f.Target) &&
			(f.From == 0 || m.due >= f.From) && (f.To == 0 || m.due < f.To) && (len(f.States) == 0 || slices.Contains(f.States, s.stateOf(m)))
		if isMeant {
			found = append(found, m)
		}
	}
	return found
}

// list answers GET /v1/messages, with pages or with lines.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := asked(r, append(filterNames[:], "limit", "cursor")...)
	f, limit := q.filter(), q.number("limit", 100)
	if limit < 1 || limit > 1000 {
		q.problem = client.BadField("limit", q.Get("limit"), "is not from 1 to 1000")
	}
	var after message
	if cursor := q.Get("cursor"); cursor != "" {
		if _, err := fmt.Sscanf(cursor, "%d-%d", &after.due, &after.seq); err != nil {
			q.problem = client.BadField("cursor", cursor, "is none that was given out: begin without one")
		}
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostOf(r.Pattern))
	if p := cmp.Or(check(r), checkBody(r, false), q.problem); p != nil {
		complain(w, p)
		return
	}
	found := slices.DeleteFunc(s.meant(f), func(m *message) bool { return q.Has("cursor") && inOrder(m, &after) <= 0 })
	if strings.Contains(r.Header.Get("Accept"), "application/x-ndjson") {
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines := json.NewEncoder(w)
		for _, m := range found {
			_ = lines.Encode(s.told(m, true)) // whoever asked may have gone
		}
		_ = lines.Encode(map[string]bool{"end": true})
		return
	}
	page := client.Page{Index: s.index, Pending: uint64(len(s.pending)), Messages: []client.Message{}}
	for _, m := range found[:min(len(found), int(limit))] {
		page.Messages = append(page.Messages, s.told(m, true))
	}
	if n := int(limit); len(found) > n {
		page.Next = fmt.Sprintf("%d-%d", found[n-1].due, found[n-1].seq)
	}
	write(w, http.StatusOK, "application/json", page)
}

func (s *Server) getMessage(r *http.Request) (any, *client.Problem) {
	n := nameOf(r)
	var newest *message
	for _, m := range s.pending {
		if m.name() == n && (newest == nil || m.seq > newest.seq) {
			newest = m
		}
	}
	if isOrigin(n) {
		if newest == nil {
			return nil, unknown("no message %s is pending", n.id)
		}
		return client.Finding{Index: s.index, Message: new(s.told(newest, true))}, nil
	}
	life := client.Life{Index: s.index, Outcomes: append([]client.Outcome{}, s.outcomes[n]...)}
	if newest != nil {
		life.Message = new(s.told(newest, true))
	}
	if newest == nil && len(life.Outcomes) == 0 {
		return nil, unknown("no message of %s with the id %q is known", n.topic, n.id)
	}
	return life, nil
}

func (s *Server) getExplain(r *http.Request) (any, *client.Problem) {
	q := asked(r, "topic", "id")
	n := name{q.Get("topic"), q.Get("id")}
	for _, field := range []string{"topic", "id"} {
		if q.Get(field) == "" {
			return nil, client.BadField(field, "", "is missing: ask for /v1/explain?topic=TOPIC&id=ID")
		}
	}
	e := client.Explanation{Topic: n.topic, ID: n.id, Node: nodeName, AppliedIndex: s.index, Cluster: Cluster, Events: []client.ExplainedEvent{}, Words: []string{}}
	for _, o := range s.outcomes[n] {
		event := client.ExplainedEvent{What: o.Kind, Seq: o.Seq, By: o.By, Due: o.Due, At: o.At, Target: o.Target, Partition: o.Partition, Offset: o.Offset}
		if o.Kind == client.OutcomeDelivered {
			event.Late = new(max(o.At-o.Due, 0))
		}
		e.Events = append(e.Events, event)
		e.Words = append(e.Words, fmt.Sprintf("message %d, due %s for %s, was %s at %s", o.Seq, rfc3339(o.Due), o.Target, o.Kind, rfc3339(o.At)))
	}
	for _, m := range s.sorted() {
		if m.name() != n {
			continue
		}
		e.Waiting = &client.ExplainedMessage{Seq: m.seq, Due: m.due, Target: m.target, Expires: m.expires, State: s.stateOf(m)}
		if m.claimed {
			e.Waiting.State = "on-its-way"
		}
	}
	if e.Waiting != nil {
		e.Words = append(e.Words, fmt.Sprintf("message %d, due %s for %s, is %s", e.Waiting.Seq, rfc3339(e.Waiting.Due), e.Waiting.Target, e.Waiting.State))
	} else {
		e.Words = append(e.Words, "no message waits under this id")
	}
	return e, nil
}

func (s *Server) getCount(r *http.Request) (any, *client.Problem) {
	q := asked(r, filterNames[:]...)
	f := q.counted()
	return client.Count{Index: s.index, Count: uint64(len(s.meant(f))), Exact: true}, q.problem
}

func (s *Server) getHistogram(r *http.Request) (any, *client.Problem) {
	q := asked(r, append(filterNames[:], "bounds", "by")...)
	f := q.counted()
	var bounds []int64
	if text := q.Get("bounds"); text != "" {
		for bound := range strings.SplitSeq(text, ",") {
			ms, err := strconv.ParseInt(bound, 10, 64)
			if err != nil {
				return nil, client.BadField("bounds", bound, "is no number: they are epoch milliseconds, with commas in between")
			}
			if p := client.CheckMillis("bounds", ms); p != nil {
				return nil, p
			}
			bounds = append(bounds, ms)
		}
	}
	if len(bounds) > client.MostBounds {
		return nil, client.BadField("bounds", strconv.Itoa(len(bounds)), fmt.Sprintf("are more than %d: give so many at most", client.MostBounds))
	}
	if !slices.IsSorted(bounds) {
		return nil, client.BadField("bounds", q.Get("bounds"), "do not rise")
	}
	if by := q.Get("by"); by != "" && by != "target" {
		return nil, client.BadField("by", by, "is not target")
	}
	type group struct {
		bucket int
		target string
	}
	counts := map[group]uint64{}
	for _, m := range s.meant(f) {
		g := group{bucket: sort.Search(len(bounds), func(i int) bool { return bounds[i] > m.due })}
		if q.Has("by") {
			g.target = m.target
		}
		counts[g]++
	}
	h := client.Histogram{Index: s.index, Pending: uint64(len(s.pending)), Exact: true, Buckets: []client.Bucket{}}
	groups := slices.SortedFunc(maps.Keys(counts), func(a, b group) int {
		if a.bucket != b.bucket {
			return a.bucket - b.bucket
		}
		return strings.Compare(a.target, b.target)
	})
	for _, g := range groups {
		b := client.Bucket{Target: g.target, Count: counts[g]}
		if g.bucket > 0 {
			b.From = &bounds[g.bucket-1]
		}
		if g.bucket < len(bounds) {
			b.To = &bounds[g.bucket]
		}
		h.Buckets = append(h.Buckets, b)
	}
	return h, q.problem
}

const nodeName = "clienttest"

func (s *Server) getStatus(*http.Request) (any, *client.Problem) {
	status := client.Status{Node: nodeName, State: "leader", Leader: nodeName, Term: 1, Pending: uint64(len(s.pending)), Parked: []string{}, Paused: s.pauses, Problems: []string{}, Routes: []string{"*" + delaySuffix}}
	if all := s.sorted(); len(all) > 0 {
		status.OldestDue = all[0].due
	}
	status.Level.InForce, status.Level.Understood = 4, 4
	return status, nil
}

// getPlaces tells of delay topics or of targets.
func (s *Server) getPlaces(kind string) func(*http.Request) (any, *client.Problem) {
	return func(*http.Request) (any, *client.Problem) {
		counts := map[string]uint64{}
		for _, p := range s.pauses {
			if p.Kind == kind {
				counts[p.Name] += 0
			}
		}
		for _, m := range s.pending {
			if kind == client.PauseTopic {
				counts[m.topic]++
			} else {
				counts[m.target]++
			}
		}
		places := client.Places{Index: s.index, Places: []client.Place{}}
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			places.Places = append(places.Places, client.Place{Name: name, Pending: counts[name], Pause: s.pauseOf(kind, name)})
		}
		return places, nil
	}
}
