package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/pause"
)

const (
	// mostPauses bounds what is written whole with each flush of the schedule.
	mostPauses = 10_000
	// mostHeld bounds delay topics times targets that are held when something is paused, and so what is
	// kept of pairs of them: how far each had come (storage, pause.Bounds), 100 bytes a pair, likewise
	// written whole. A target that parks later is held further than the topics that are paused by then,
	// and adds one for each of these when it is resumed: storage bounds them.
	mostHeld = 1_000_000
	// mostWords bounds who and why, in bytes.
	mostWords = 1000
)

// Pause has the messages of a delay topic, or those for a target, wait until Resume. What was claimed
// by then is still delivered, but for a target's where it was not handed over. What is paused already stays
// as it is. Only the leader can. The error is a *client.Problem if the pause is refused, and raftfsm's
// otherwise. It blocks for one log entry.
func (b *Broker) Pause(ctx context.Context, p client.Pause) (client.PauseChange, error) {
	kind, err := b.checkPause(ctx, p)
	if err != nil {
		return client.PauseChange{}, err
	}
	return b.commitPause(ctx, "pause", p, raftfsm.Pause{Time: b.now().UnixMilli(), Kind: kind, Name: p.Name, Who: p.Who, Why: p.Why})
}

// Resume ends a pause: what waits is delivered, in order. Only the kind and the name of p count. As
// Pause in all else.
func (b *Broker) Resume(ctx context.Context, p client.Pause) (client.PauseChange, error) {
	kind, err := b.checkKind(p)
	if err != nil {
		return client.PauseChange{}, err
	}
	return b.commitPause(ctx, "resume", p, raftfsm.Resume{Time: b.now().UnixMilli(), Kind: kind, Name: p.Name})
}

func (b *Broker) commitPause(ctx context.Context, verb string, p client.Pause, command raftfsm.Command) (client.PauseChange, error) {
	if err := b.users().Begun(); err != nil {
		return client.PauseChange{}, fmt.Errorf("%s %s %q: %w", verb, p.Kind, p.Name, err)
	}
	if level := b.node.Store().Level(); level < storage.LevelThree {
		return client.PauseChange{}, &client.Problem{Code: client.CodeLevelTooLow, Detail: fmt.Sprintf("the feature level is %d, a pause takes %d: run `carillon cluster raise` when all nodes run a program that understands it", level, storage.LevelThree)}
	}
	result, err := b.users().Propose(ctx, command).Wait(ctx)
	if errors.Is(err, raftfsm.ErrInDoubt) {
		err = fmt.Errorf("%w: `carillon status` tells what is paused", err)
	}
	if err != nil {
		return client.PauseChange{}, fmt.Errorf("%s %s %q: %w", verb, p.Kind, p.Name, err)
	}
	b.log.Info(verb+"d", "kind", p.Kind, "name", p.Name, "who", p.Who, "why", p.Why, "changed", result.Changed)
	change := client.PauseChange{Changed: result.Changed}
	for _, was := range pausesOf(b.node.Store()) {
		if !change.Changed && was.Kind == p.Kind && was.Name == p.Name {
			change.Was = &was
		}
	}
	return change, nil
}

// checkPause returns the kind of a pause that may be made, or why not.
func (b *Broker) checkPause(ctx context.Context, p client.Pause) (pause.Kind, error) {
	kind, err := b.checkKind(p)
	if err != nil {
		return 0, err
	}
	route, isDelayTopic := b.config.Route(p.Name)
	switch {
	case kind == pause.Topic && !isDelayTopic:
		return 0, client.BadField(p.Kind, p.Name, fmt.Sprintf("is of no route, so no message comes by it: name one that routes[].from matches, which are %s; or, if it is a target, pause it as one",
			patterns(b.config.Routes)))
	case kind == pause.Target && isDelayTopic:
		return 0, client.BadField(p.Kind, p.Name, fmt.Sprintf("is a delay topic by routes[].from %q, and no message goes there: pause it as a topic", route.From))
	case strings.TrimSpace(p.Why) == "":
		return 0, client.BadField("why", p.Why, fmt.Sprintf("is empty: say it to those who find the %s paused", kind))
	}
	for _, words := range [][2]string{{"who", p.Who}, {"why", p.Why}} {
		if field, text := words[0], words[1]; len(text) > mostWords || !utf8.ValidString(text) {
			return 0, client.BadField(field, text, fmt.Sprintf("has %d bytes: write %d at most, of UTF-8 text", len(text), mostWords))
		}
	}
	if kind == pause.Target && !b.config.Targets.Allows(p.Name) && !slices.Contains(b.config.DeadLetterTopics(), p.Name) {
		if err := b.checkDenied(ctx, p); err != nil {
			return 0, err
		}
	}
	return kind, b.checkRoom(kind, p)
}

// checkDenied refuses the pause of a target to which no message may go, unless some wait for it that came before
// the configuration said so: these are still delivered.
func (b *Broker) checkDenied(ctx context.Context, p client.Pause) error {
	tally, err := b.node.Store().Tally(ctx, storage.TallyQuery{From: storage.Ref{Due: math.MinInt64}, Last: math.MaxInt64, Sort: func(_ *storage.Moment, e *storage.Entry) (storage.Group, bool) {
		return storage.Group{}, e.Target == p.Name
	}})
	if err != nil {
		return fmt.Errorf("pause %s %q: %w", p.Kind, p.Name, err)
	}
	if len(tally.Groups) > 0 || !tally.Exact { // an estimate may have missed the few
		return nil
	}
	refused := client.BadField(p.Kind, p.Name, "is not among the targets by targets.allow and targets.deny, and no message waits for it: name one that messages go to")
	refused.Code = client.CodeTargetNotAllowed
	return refused
}

// checkRoom refuses a pause that is one too many.
func (b *Broker) checkRoom(kind pause.Kind, p client.Pause) error {
	store := b.node.Store()
	if store.Paused(kind, p.Name) {
		return nil
	}
	if n := len(store.Pauses()); n >= mostPauses {
		return &client.Problem{Code: client.CodeRefused, Detail: fmt.Sprintf("%d topics and targets are paused, %d at most: resume some", n, mostPauses)}
	}
	held := map[pause.Kind]int{pause.Topic: store.Held(pause.Topic), pause.Target: store.Held(pause.Target)}
	if _, isHeld := store.Hold(kind, p.Name); !isHeld {
		held[kind]++
	}
	if topics, targets := held[pause.Topic], held[pause.Target]; topics*targets > mostHeld {
		return &client.Problem{Code: client.CodeRefused, Field: p.Kind, Value: p.Name, Detail: fmt.Sprintf("%s %q: with it %d delay topics and %d targets would be held, since they are paused or targets cannot be written to, and each pair is kept, %d at most: resume some, or create or mend the targets that `carillon status` names",
			kind, p.Name, topics, targets, mostHeld)}
	}
	return nil
}

// checkKind refuses what cannot be paused nor be resumed.
func (b *Broker) checkKind(p client.Pause) (pause.Kind, error) {
	kinds := map[string]pause.Kind{client.PauseTopic: pause.Topic, client.PauseTarget: pause.Target}
	kind, known := kinds[p.Kind]
	if !known {
		return 0, client.BadField("kind", p.Kind, fmt.Sprintf("is neither %s nor %s: write one of them", client.PauseTopic, client.PauseTarget))
	}
	if err := config.CheckTopicName(p.Name); err != nil {
		wrong := client.BadField(p.Kind, p.Name, "")
		wrong.Detail = err.Error()
		return 0, wrong
	}
	return kind, nil
}

func patterns(routes []config.Route) string {
	all := make([]string, len(routes))
	for i, route := range routes {
		all[i] = fmt.Sprintf("%q", route.From)
	}
	return strings.Join(all, ", ")
}

// pausesOf tells what is paused as far as this node has applied the log.
func pausesOf(store *storage.Store) (all []client.Pause) {
	for _, p := range store.Pauses() {
		all = append(all, client.Pause{Kind: p.Kind.String(), Name: p.Name, Who: p.Who, Why: p.Why, Since: p.Since})
	}
	return all
}
