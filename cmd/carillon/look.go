package main

import (
	"bytes"
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/cmd/carillon/internal/top"
)

// A looker asks a cluster how it is, again and again. One goroutine uses it.
type looker struct {
	nodes   nodes
	last    top.State // of the last time that a node answered
	history top.History
}

// looks looks at once and then every so often, and passes on what it sees, until ctx ends.
func (l *looker) looks(every time.Duration) func(context.Context, chan<- top.State) {
	return func(ctx context.Context, to chan<- top.State) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			state := l.look(ctx)
			select {
			case to <- state:
			case <-ctx.Done():
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// look asks the cluster. Where no node answers, the state is that of the last time, with why.
func (l *looker) look(ctx context.Context) top.State {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	now := time.Now()
	_, leader, err := l.nodes.status(ctx)
	if err != nil {
		state := l.last
		state.Now, state.Trouble = now, err.Error()
		state.Name = l.name()
		return state
	}
	state := top.State{Now: now, At: now, Name: l.name(), Status: leader, Bounds: top.DueBounds(now)}
	state.RatesTrouble = l.rates(ctx, &state)
	state.DueTrouble = l.due(ctx, &state)
	l.last = state
	return state
}

// name is what the user calls the cluster.
func (l *looker) name() string {
	return cmp.Or(l.nodes.context, strings.Join(l.nodes.addresses, ","))
}

// due asks the leader what is due when, and returns why that is not known.
func (l *looker) due(ctx context.Context, state *top.State) (trouble string) {
	texts := make([]string, len(state.Bounds))
	for i, bound := range state.Bounds {
		texts[i] = strconv.FormatInt(bound, 10)
	}
	err := l.nodes.ask(ctx, func(ctx context.Context, node *api.Client) (err error) {
		state.Due, err = node.Histogram(ctx, url.Values{"bounds": {strings.Join(texts, ",")}})
		return err
	})
	if err != nil {
		return "what is due next: " + err.Error()
	}
	return ""
}

// rates reads the counters of the leader, and returns why the rates are not known.
func (l *looker) rates(ctx context.Context, state *top.State) (trouble string) {
	s := state.Status
	if s.Leader == "" {
		return "rates: there is no leader"
	}
	at := slices.IndexFunc(s.Members, func(m broker.MemberStatus) bool { return m.ID == s.Leader })
	if at < 0 || s.Node != s.Leader {
		return "rates: the leader " + s.Leader + " cannot be reached from here"
	}
	text, err := l.nodes.client(s.Members[at].API).Metrics(ctx)
	if err != nil {
		return "rates: " + err.Error()
	}
	sample, err := top.ReadSample(bytes.NewReader(text), s.Node, time.Now())
	if err != nil {
		return "rates: " + err.Error()
	}
	state.Rates = l.history.Add(sample)
	return ""
}
