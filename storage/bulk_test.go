package storage

import (
	"context"
	"testing"

	"github.com/carillonmq/carillon/storage/bulk"
	gocmp "github.com/google/go-cmp/cmp"
)

// Operations on many messages survive a flush, go into streams, are inspected, and are known for a day.
func TestBulk_isReplicatedStateOfLevelFour(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	s.RaiseLevel(LevelFour)
	s.Accept(entries(10, 100, 1, 10))
	for id := uint64(1); id <= bulk.MostRunning; id++ {
		if got, ok := s.StartBulk(bulk.Operation{What: "cancel", Who: "ann", Started: 5, UpperSeq: 99}); got != id || !ok {
			t.Fatalf("started %d, %t", got, ok)
		}
	}
	before := digest(t, s)
	if _, ok := s.StartBulk(bulk.Operation{}); ok || digest(t, s) != before {
		t.Error("more run than may")
	}
	o, ok := s.RunningBulk(3)
	if !ok || o.UpperSeq != 10 {
		t.Fatalf("%+v, %t", o, ok)
	}
	o.State, o.Ended, o.Done, o.Cursor = bulk.Finished, 1000, 7, "there"
	s.SetBulk(o)
	if _, runs := s.RunningBulk(3); runs || digest(t, s) == before {
		t.Error("it runs still, or the digest does not tell")
	}
	s.Applied(1)
	flush(t, s, 1)
	want := s.Bulks()
	if len(want) != bulk.MostRunning || want[5] != o {
		t.Errorf("%+v", want)
	}
	to := openStore(t, t.TempDir())
	if err := transfer(s, to); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]*Store{"reloaded": s, "received": to} {
		if diff := gocmp.Diff(want, store.Bulks()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := s.List(context.Background(), ListQuery{Last: 1 << 40, Limit: 100}); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := Inspect(dir)
	if err != nil || len(found.Damages) > 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	if diff := gocmp.Diff(want, found.Bulks); diff != "" {
		t.Errorf("inspected (-want +got):\n%s", diff)
	}
	to.SetTime(1000 + bulk.KeptFor)
	if got := len(to.Bulks()); got != bulk.MostRunning {
		t.Errorf("%d are known a day after the end", got)
	}
	to.SetTime(1001 + bulk.KeptFor)
	if got := len(to.Bulks()); got != bulk.MostRunning-1 {
		t.Errorf("%d are known more than a day after the end", got)
	}
}
