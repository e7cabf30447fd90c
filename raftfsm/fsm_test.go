package raftfsm

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func emptyLog() (index, term uint64, err error) { return 0, 0, nil }

func openStore(t testing.TB, dir string) *storage.Store {
	t.Helper()
	s, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fsmConfig(flushBytes int64, fail func(error)) FSMConfig {
	return FSMConfig{
		LastLog: emptyLog, Fail: fail, FlushBytes: flushBytes,
		Understands: storage.NewestLevel, Logger: slog.New(slog.DiscardHandler),
	}
}

func digest(t testing.TB, s *storage.Store) [32]byte {
	t.Helper()
	d, err := s.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newTestFSM(t testing.TB) *FSM {
	t.Helper()
	s := openStore(t, t.TempDir())
	t.Cleanup(func() { _ = s.Close() })
	return NewFSM(s, fsmConfig(1<<20, func(err error) { t.Errorf("failed: %v", err) }))
}

// apply gives cmd to the FSM as the next entry of its log.
func apply(t testing.TB, f *FSM, cmd Command) Result {
	t.Helper()
	res, ok := f.Apply(&raft.Log{Index: f.applied + 1, Term: 1, Data: cmd.append(nil)}).(Result)
	if !ok {
		t.Fatalf("%T was not applied: %v", cmd, f.broken)
	}
	return res
}

func positionFrom(next int64) SetPositions {
	return SetPositions{Sets: []PositionSet{{Position: storage.Position{Topic: "a.delay", TopicID: topicID, Next: next, Epoch: -1}, From: FromAbsent}}}
}

func knownPosition(t testing.TB, f *FSM, next int64) {
	t.Helper()
	apply(t, f, positionFrom(next))
}

func ingestOf(from int64, dues ...int64) Ingest {
	p := Part{TopicID: topicID, Topic: "a.delay", From: from, Next: from + int64(len(dues))}
	for _, due := range dues {
		p.Entries = append(p.Entries, storage.Entry{Due: due, Target: "a", Body: []byte("x")})
	}
	return Ingest{Time: 1, Parts: []Part{p}}
}

func TestFSM_ingestsOnlyFromTheStoredPosition(t *testing.T) {
	f := newTestFSM(t)
	if res := apply(t, f, ingestOf(0, 10)); res.PartsApplied[0] {
		t.Error("ingested from a partition without a position")
	}
	knownPosition(t, f, 5)
	if res := apply(t, f, ingestOf(4, 10)); res.PartsApplied[0] || f.store.Pending() != 0 {
		t.Error("ingested below the position")
	}
	res := apply(t, f, ingestOf(5, 30, 20))
	if !res.PartsApplied[0] || res.Accepted != 2 || res.FirstSeq != 1 {
		t.Errorf("got %+v, want 2 accepted from seq 1", res)
	}
	if res := apply(t, f, ingestOf(5, 30, 20)); res.PartsApplied[0] || f.store.Pending() != 2 {
		t.Error("the same records were ingested twice")
	}
	both := ingestOf(7, 1)
	both.Parts = append(both.Parts, ingestOf(99, 2).Parts[0], ingestOf(8, 3).Parts[0])
	res = apply(t, f, both)
	if diff := cmp.Diff([]bool{true, false, true}, res.PartsApplied); diff != "" || res.Accepted != 2 || res.FirstSeq != 3 {
		t.Errorf("got %+v: %s", res, diff)
	}
}

func TestFSM_setsPositionsByCompareAndSet(t *testing.T) {
	f := newTestFSM(t)
	set := func(from, next int64) bool {
		pos := storage.Position{Topic: "a.delay", TopicID: topicID, Next: next, Epoch: -1}
		return apply(t, f, SetPositions{Sets: []PositionSet{{Position: pos, From: from}}}).PartsApplied[0]
	}
	if set(0, 1) {
		t.Error("0 matched an absent position")
	}
	if !set(FromAbsent, -1) || set(FromAbsent, 7) || !set(-1, 7) || set(-1, 9) {
		t.Error("absent to -1 to 7 did not go exactly so")
	}
	if at, _ := f.store.Position(topicID, 0); at.Next != 7 {
		t.Errorf("position %d, want 7", at.Next)
	}
}

func TestFSM_foundsOnce(t *testing.T) {
	f := newTestFSM(t)
	apply(t, f, Found{ClusterID: topicID, Mode: "at-least-once"})
	apply(t, f, Found{ClusterID: [16]byte{9}, Mode: "exactly-once"})
	if s := f.store.State(); s.ClusterID != topicID || s.Mode != "at-least-once" {
		t.Errorf("cluster %x, mode %s: the second founding counted", s.ClusterID, s.Mode)
	}
}

func TestFSM_replacesOnlyWhatIsAlive(t *testing.T) {
	f := newTestFSM(t)
	knownPosition(t, f, 0)
	apply(t, f, ingestOf(0, 10, 20, 30))
	apply(t, f, Ack{Runs: killed(2, 2)})
	dead := []storage.Entry{{Due: 1, Target: "dead"}, {Due: 2, Target: "dead"}, {Due: 3, Target: "dead"}}
	res := apply(t, f, Replace{Kills: []uint64{1, 2, 1}, Entries: dead})
	if diff := cmp.Diff([]bool{true, false, false}, res.PartsApplied); diff != "" || res.Accepted != 1 || res.Killed != 1 {
		t.Errorf("got %+v: %s", res, diff)
	}
	if f.store.Alive(1) || !f.store.Alive(3) || !f.store.Alive(4) || f.store.Pending() != 2 {
		t.Errorf("pending %d, want 3 and 4 alive", f.store.Pending())
	}
}

// A ClaimCommand is made up, then a message is accepted that is due before the
// mark it proposes, then it is applied.
func TestFSM_keepsMarksBelowWhatTheProposerHadNotSeen(t *testing.T) {
	f := newTestFSM(t)
	knownPosition(t, f, 0)
	apply(t, f, ClaimCommand{Claim: storage.Claim{Through: 10, Mark: storage.Ref{Due: 100}}})
	apply(t, f, ingestOf(0, 500, 150))
	proposed := storage.Claim{Through: 5, Mark: storage.Ref{Due: 300}, Holds: []storage.Hold{
		{Target: "b", Mark: storage.Ref{Due: 50}}, {Target: "c", Mark: storage.Ref{Due: 400}}}}
	apply(t, f, ClaimCommand{Claim: proposed})
	got := f.store.Claim()
	got.Holds = f.store.Holds()
	want := storage.Claim{Through: 10, Mark: storage.Ref{Due: 150, Seq: 2}, Holds: []storage.Hold{
		{Target: "b", Mark: storage.Ref{Due: 50}}, {Target: "c", Mark: storage.Ref{Due: 150, Seq: 2}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The next one is made up by a proposer that has seen it all.
	apply(t, f, ClaimCommand{Claim: storage.Claim{Through: 20, Mark: storage.Ref{Due: 300}}})
	if got := f.store.Claim(); got.Mark.Due != 300 || got.Through != 20 || len(f.store.Holds()) != 0 {
		t.Errorf("got %+v, want the claim as proposed", got)
	}
}

func TestFSM_tellsTheFeedWhatItDid(t *testing.T) {
	f := newTestFSM(t)
	knownPosition(t, f, 0)
	feed := f.Subscribe(100)
	apply(t, f, ClaimCommand{Claim: storage.Claim{Through: 10, Mark: storage.Ref{Due: 5}}})
	withClaim := ingestOf(0, 7)
	withClaim.ClaimThrough = 12
	apply(t, f, withClaim)
	apply(t, f, Ack{Runs: killed(1, 1)})
	got, _, _ := feed.Take(nil)
	want := []Event{
		{Index: 2, Claim: &storage.Claim{Through: 10, Mark: storage.Ref{Due: 5}}},
		{Index: 3, Accepted: []storage.Item{{Ref: storage.Ref{Due: 7, Seq: 1}, Target: "a", Size: 1}},
			Claim: &storage.Claim{Through: 12, Mark: storage.Ref{Due: 5}, Fresh: storage.Ref{Due: 7, Seq: 1}}},
		{Index: 4, Killed: killed(1, 1)},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The claim is named when it changes: by a lower mark, not by what lies above
	// it, nor by a ClaimCommand that says the same.
	for i, step := range []struct {
		cmd     Command
		changes bool
	}{
		{ingestOf(1, 6), false},
		{ingestOf(2, 4), true},
		{ClaimCommand{Claim: storage.Claim{Through: 12, Mark: storage.Ref{Due: 4, Seq: 3}}}, false},
		{ClaimCommand{Claim: storage.Claim{Through: 12, Mark: storage.Ref{Due: 9}}}, true},
	} {
		apply(t, f, step.cmd)
		if got, _, _ := feed.Take(nil); len(got) != 1 || (got[0].Claim != nil) != step.changes {
			t.Errorf("step %d: %+v, claim named: want %v", i, got, step.changes)
		}
	}
	feed.Close()
	apply(t, f, ingestOf(3, 8))
	if got, _, _ := feed.Take(nil); len(got) != 0 {
		t.Errorf("closed, and still fed: %v", got)
	}
}

func TestFSM_stopsRatherThanSkipWhatItDoesNotKnow(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	var failures []error
	f := NewFSM(s, fsmConfig(1<<20, func(err error) { failures = append(failures, err) }))
	err, _ := f.Apply(&raft.Log{Index: 1, Data: []byte{9, 9, 9}}).(error)
	if !errors.Is(err, ErrUnknownCommand) || !strings.Contains(err.Error(), "log entry 1") || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("got %v, want the entry and its version named", err)
	}
	if _, applied := f.Apply(&raft.Log{Index: 2, Data: samples["found"].append(nil)}).(Result); applied {
		t.Error("went on after an entry it did not apply")
	}
	if _, err := f.Snapshot(); err == nil {
		t.Error("took a snapshot of a state that lacks an entry")
	}
	if len(failures) != 1 || s.State().AppliedIndex != 0 {
		t.Errorf("told %d times, applied to %d", len(failures), s.State().AppliedIndex)
	}
}

// The same log on three nodes: one never flushes, one flushes now and then, one
// flushes, is closed, and gets the whole log again.
func TestFSM_makesTheSameStateWhereverItFlushes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		commands := rapid.SliceOfN(rapid.Custom(drawCommand), 1, 40).Draw(rt, "commands")
		dir := t.TempDir()
		plain, flushed := newTestFSM(t), newTestFSM(t)
		again := NewFSM(openStore(t, dir), fsmConfig(1<<20, nil))
		knownPosition(t, plain, 0)
		knownPosition(t, flushed, 0)
		knownPosition(t, again, 0)
		for _, cmd := range commands {
			want := apply(t, plain, cmd)
			if diff := cmp.Diff(want, apply(t, flushed, cmd)); diff != "" {
				rt.Fatalf("%T (-plain +flushed):\n%s", cmd, diff)
			}
			apply(t, again, cmd)
			if rapid.IntRange(0, 5).Draw(rt, "flush") == 0 {
				flushNow(t, flushed)
				flushNow(t, again)
			}
		}
		if err := again.store.Close(); err != nil {
			t.Fatal(err)
		}
		again = NewFSM(openStore(t, dir), fsmConfig(1<<20, nil))
		defer again.store.Close()
		again.Apply(&raft.Log{Index: 1, Term: 1, Data: positionFrom(0).append(nil)})
		for i, cmd := range commands {
			again.Apply(&raft.Log{Index: uint64(i + 2), Term: 1, Data: cmd.append(nil)})
		}
		want := digest(t, plain.store)
		if digest(t, flushed.store) != want {
			rt.Errorf("flushing changed the state: %+v, want %+v", flushed.store.State(), plain.store.State())
		}
		if digest(t, again.store) != want {
			rt.Errorf("replaying changed the state: %+v, want %+v", again.store.State(), plain.store.State())
		}
		if err := errors.Join(flushed.store.Check(), again.store.Check()); err != nil {
			rt.Error(err)
		}
	})
}

func flushNow(t testing.TB, f *FSM) {
	t.Helper()
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	meta := storage.SnapshotMeta{Index: f.applied, Term: 1}
	if err := snap.Persist(&sink{meta: meta}); err != nil {
		t.Fatal(err)
	}
	snap.Release()
}

func drawCommand(t *rapid.T) Command {
	small := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
	switch small("kind", 6) {
	case 6:
		return RaiseLevel{Time: small("time", 99), Level: storage.Level(small("level", int64(storage.NewestLevel)))}
	case 0:
		return Ack{Time: small("time", 99), Runs: killed(uint64(small("first", 9)), uint64(9+small("last", 9)))}
	case 1:
		return ClaimCommand{Claim: storage.Claim{Through: small("through", 50), Mark: storage.Ref{Due: small("mark", 50)}}}
	case 2:
		return Replace{Kills: []uint64{uint64(small("kill", 20))}, Entries: []storage.Entry{{Due: small("due", 50), Target: "dead", Body: []byte{}}}}
	default:
		dues := rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 4).Draw(t, "dues")
		return ingestOf(small("from", 8), dues...)
	}
}
