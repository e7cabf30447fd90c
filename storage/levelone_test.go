package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
)

// goldenStore has a short history: two segments, kills in both and in memory, a hold,
// positions. It is as deterministic as the formats are.
func goldenStore(t *testing.T) *Store {
	t.Helper()
	s := openStore(t, t.TempDir())
	s.Found([16]byte{7, 7}, "at-least-once")
	for index := uint64(1); index <= 2; index++ {
		s.SetTime(int64(1_700_000_000_000 + index))
		s.SetClaim(Claim{Through: 500, Mark: Ref{Due: 400, Seq: 3}, Holds: []Hold{{Target: "held", Through: 100, Mark: Ref{Due: 90, Seq: 1}}}})
		s.SetPosition(Position{Topic: "a.delay", TopicID: [16]byte{1}, Partition: int32(index), Next: 7, Epoch: 2})
		batch := entries(300, 1000*int64(index), 3, 40)
		batch[0].Body, batch[1].Body, batch[2].Target = nil, []byte{}, "held"
		s.Accept(batch)
		s.Kill([]SeqRun{{First: 10 * index, Last: 10*index + 100}, {First: 5, Last: 5}})
		s.Applied(index)
		if err := s.Freeze().Flush(SnapshotMeta{Index: index, Term: 1, Configuration: []byte("group"), ConfigurationIndex: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// What a node of LevelOne writes to disk and sends to others is, to the byte, what the
// program of 309c7bc wrote of the same history, which had no levels. The sums were
// printed by that program.
func TestLevelOne_writesWhatProgramsWroteBeforeThereWereLevels(t *testing.T) {
	s := goldenStore(t)
	_, _, stream, err := s.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, stream); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"stream": short(sum.Sum(nil))}
	err = s.manifest.db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			return bucket.ForEach(func(key, value []byte) error {
				sum := sha256.Sum256(value)
				got[fmt.Sprintf("%s %q", name, key)] = short(sum[:])
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	digest := digest(t, s)
	got["digest"] = short(digest[:])
	want := map[string]string{
		"stream":           "ef39e3bddacdc103",
		`manifest "head"`:  "4dbe253b548eb124",
		`manifest "state"`: "9c50ff302b4e32b5",
		`manifest "alive"`: "64339e88aeb7ed94",
		`segments "\x00\x00\x00\x00\x00\x00\x00\x01"`: "504701170a8c6125",
		`segments "\x00\x00\x00\x00\x00\x00\x00\x02"`: "925925ea8babf484",
		"digest": "827a9eadde26b369",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-309c7bc +now:\n%s", diff)
	}
}

func short(sum []byte) string { return hex.EncodeToString(sum[:8]) }
