package storage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage/pause"
)

func levelThree(t *testing.T) *Store {
	s := openStore(t, t.TempDir())
	s.RaiseLevel(LevelThree)
	return s
}

// accept adds a message that came by the topic for the target.
func (s *Store) acceptFor(topic, target string, due int64) Ref {
	return Ref{Due: due, Seq: s.Accept([]Entry{{Due: due, Topic: topic, Target: target, Body: []byte("x")}})}
}

func topicPause(name string) pause.Pause {
	return pause.Pause{Kind: pause.Topic, Name: name, Who: "ann"}
}

func targetPause(name string) pause.Pause {
	return pause.Pause{Kind: pause.Target, Name: name, Who: "ann"}
}

// From the pause on nothing more of it is claimed; what was claimed stays so.
func TestPause_keepsWhatItNamesFromBeingClaimed(t *testing.T) {
	s := levelThree(t)
	s.ChangeClaim(ClaimChange{Through: 100, Mark: Ref{Due: 90}})
	if !s.Pause(topicPause("a.delay")) || !s.Pause(targetPause("bills")) || s.Pause(topicPause("a.delay")) {
		t.Error("a pause says wrongly whether it changed anything")
	}
	s.RaiseClaim(200)
	for _, of := range []struct {
		topic, target string
		want          int64
	}{
		{"a.delay", "orders", 100}, {"b.delay", "bills", 100}, {"a.delay", "bills", 100}, {"b.delay", "orders", 200}, {"", "", 200},
		{"bills", "a.delay", 200}, // a topic and a target may have one name
	} {
		if got := s.Through(of.topic, of.target); got != of.want {
			t.Errorf("what came by %q for %q is claimed through %d, want %d", of.topic, of.target, got, of.want)
		}
	}
	if !s.Resume(pause.Topic, "a.delay") || s.Resume(pause.Topic, "a.delay") || s.Resume(pause.Target, "nobody") {
		t.Error("a resume says wrongly whether it changed anything")
	}
	if got := s.Through("a.delay", "orders"); got != 100 {
		t.Errorf("a resume alone has claimed through %d", got)
	}
	s.ChangeClaim(ClaimChange{Through: 200, Topics: []TopicHold{{Topic: "a.delay", Through: 150}}})
	if got := s.Through("a.delay", "orders"); got != 150 {
		t.Errorf("after a step claimed through %d", got)
	}
	s.ChangeClaim(ClaimChange{Through: 200, LiftTopics: []string{"a.delay"}})
	if got := s.Through("a.delay", "orders"); got != 200 || len(s.TopicHolds()) != 0 {
		t.Errorf("lifted it is claimed through %d, holds %v", got, s.TopicHolds())
	}
}

// A hold that a pause sets covers what is alive, wherever that was covered before.
func TestPause_marksCoverWhatIsAlive(t *testing.T) {
	s := levelThree(t)
	old := s.acceptFor("a.delay", "stuck", 10)
	s.ChangeClaim(ClaimChange{Through: 100, Mark: Ref{Due: 90}, Set: []Hold{{Target: "stuck", Through: 50, Mark: old}}})
	s.acceptFor("a.delay", "orders", 95)
	s.Pause(topicPause("a.delay"))
	topic := func() Ref { return s.TopicHolds()[0].Mark }
	if topic() != old {
		t.Errorf("the topic's mark is %v, a message of it waits for a held target at %v", topic(), old)
	}
	late := s.acceptFor("a.delay", "orders", 5)
	if topic() != late || s.Claim().Mark != late {
		t.Errorf("the topic's mark is %v and the claim's %v after %v was accepted", topic(), s.Claim().Mark, late)
	}
	stuck := s.acceptFor("a.delay", "stuck", 4)
	if topic() != stuck || s.Holds()[0].Mark != stuck {
		t.Errorf("marks %v and %v after %v was accepted for both", topic(), s.Holds()[0].Mark, stuck)
	}
	// The leader moves on past what is held, which the target's hold covers all the same.
	s.ChangeClaim(ClaimChange{Through: 100, Mark: Ref{Due: 99}})
	s.Pause(targetPause("orders"))
	at := slices.IndexFunc(s.Holds(), func(h Hold) bool { return h.Target == "orders" })
	if got := s.Holds()[at].Mark; got != stuck {
		t.Errorf("the target's mark is %v, messages for it came by a topic held from %v on", got, stuck)
	}
	s.acceptFor("b.delay", "orders", 97)
	if s.Claim().Mark.Due != 99 {
		t.Error("a message of a held target moves the claim's mark")
	}
}

func TestPause_isReplicatedState(t *testing.T) {
	s := levelThree(t)
	before := digest(t, s)
	s.Pause(pause.Pause{Kind: pause.Topic, Name: "a.delay", Who: "ann", Why: "why", Since: 7})
	s.Pause(targetPause("orders"))
	if digest(t, s) == before {
		t.Error("the digest does not tell what is paused")
	}
	s.ChangeClaim(ClaimChange{Through: 100})
	late := s.acceptFor("a.delay", "bills", -1) // due by what the topic's hold has come to
	pauses, holds, topics := s.Pauses(), s.Holds(), s.TopicHolds()
	s.Applied(1)
	flush(t, s, 1)
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	to := openStore(t, t.TempDir())
	if err := transfer(s, to); err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]*Store{"reloaded": s, "received": to} {
		if store.Claimed(late, "a.delay", "bills") || !store.Claimed(Ref{Due: -1, Seq: late.Seq - 1}, "a.delay", "bills") {
			t.Errorf("%s: what was taken in since the pause is claimed, or what was before is not", name)
		}
		if !slices.Equal(store.Pauses(), pauses) || !slices.Equal(store.Holds(), holds) || !slices.Equal(store.TopicHolds(), topics) || len(topics) != 1 {
			t.Errorf("%s: paused %+v, holds %+v and %+v", name, store.Pauses(), store.Holds(), store.TopicHolds())
		}
	}
	frozen := s.Freeze()
	s.Resume(pause.Topic, "a.delay")
	s.ChangeClaim(ClaimChange{LiftTopics: []string{"a.delay"}})
	s.Applied(2)
	if err := frozen.Flush(SnapshotMeta{Index: 2, Term: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if !s.Paused(pause.Topic, "a.delay") || len(s.TopicHolds()) != 1 {
		t.Error("what was frozen has changed")
	}
}

// What a topic that comes back has brought for targets that are held further is bounded, pair by pair, up to
// a million pairs. Of the next ones it is claimed as the topic's hold is lifted, and of none while it is paused.
func TestPause_boundsAMillionPairsAtMost(t *testing.T) {
	s := levelThree(t)
	const topics, targets = mostPairs/1000 + 1, 1000
	topic := func(i int) string { return fmt.Sprintf("%04d.delay", i) }
	s.ChangeClaim(ClaimChange{Through: 100})
	for i := range topics {
		s.Pause(topicPause(topic(i)))
	}
	change := ClaimChange{Through: 200}
	for i := range targets {
		change.Set = append(change.Set, Hold{Target: fmt.Sprintf("%03d", i), Through: 200})
	}
	s.ChangeClaim(change)
	lift := ClaimChange{Through: 200}
	for i := range topics {
		s.Resume(pause.Topic, topic(i))
		lift.LiftTopics = append(lift.LiftTopics, topic(i))
	}
	s.ChangeClaim(lift)
	if n := s.PauseBounds().Len(); n != mostPairs {
		t.Errorf("%d pairs are bounded, want %d", n, mostPairs)
	}
	for _, of := range []struct {
		topic int
		want  int64
	}{{0, 100}, {topics - 2, 100}, {topics - 1, 200}} {
		if got := s.Through(topic(of.topic), "500"); got != of.want {
			t.Errorf("what came by the topic %d for a target that is held all along is claimed through %d, want %d", of.topic, got, of.want)
		}
	}
	s.ChangeClaim(ClaimChange{Through: 200, Lift: []string{"500"}})
	if got := s.Through(topic(0), "500"); got != 200 || s.PauseBounds().Len() >= mostPairs {
		t.Errorf("of a target that is not held any more it is claimed through %d", got)
	}
	s.Pause(topicPause(topic(topics - 1)))
	s.ChangeClaim(ClaimChange{Through: 300, Set: []Hold{{Target: "501", Through: 300}}})
	if got := s.Through(topic(topics-1), "501"); got != 200 {
		t.Errorf("what is paused is claimed through %d", got)
	}
}
