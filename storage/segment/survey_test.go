package segment

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/storage/alive"
	"go.etcd.io/bbolt"
)

// surveyed are entries for a few targets, of which some expire.
func surveyed(count int) []Entry {
	entries := make([]Entry, count)
	for i := range entries {
		entries[i] = Entry{Due: int64(i) * 7, Seq: uint64(i + 1), Target: fmt.Sprint("target-", i%7), Topic: "orders.delay", Body: make([]byte, i%500)}
		if i%5 == 0 {
			entries[i].Expires = int64(i)*7 + 1000
		}
	}
	return entries
}

// What is written with a segment is what a segment from before would be read for.
func TestSurvey_isWrittenWithTheSegment(t *testing.T) {
	for _, count := range []int{1, SurveySize, SurveySize + 1, 20_000} {
		s := writtenAs(t, WithIDs, surveyed(count))
		var taken []Entry
		err := s.view(func(tx *bbolt.Tx) (err error) {
			if key, _ := storedSurvey(tx); key == nil {
				t.Errorf("no survey was written with %d entries", count)
			}
			taken, err = s.takeSurvey(t.Context(), tx)
			return err
		})
		got, gotErr := s.Survey(t.Context())
		if err != nil || gotErr != nil || len(got) != min(count, SurveySize) || !reflect.DeepEqual(got, taken) {
			t.Errorf("survey of %d of %d entries, %d taken (%v, %v)", len(got), count, len(taken), gotErr, err)
		}
		if _, err := s.Verify(alive.NewSet(), nil); err != nil {
			t.Error(err)
		}
	}
}

func TestSurvey_ofASegmentFromBefore(t *testing.T) {
	s := written(t, surveyed(5000))
	got, err := s.Survey(t.Context())
	if err != nil || len(got) != SurveySize {
		t.Errorf("survey of %d entries: %v", len(got), err)
	}
}

// A segment that lacks what it should have is not finished.
func TestWriter_countsWhatComes(t *testing.T) {
	w, err := Create(t.TempDir()+"/1.seg", WithIDs, 1, 10, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := w.Add(&Entry{Due: int64(i), Seq: uint64(i + 1), Target: "orders"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = w.Finish()
	if err = w.Abort(err); err == nil || !strings.Contains(err.Error(), "2 entries came where 3 should") {
		t.Errorf("finished with %v", err)
	}
}
