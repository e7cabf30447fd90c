package deadletter

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/carillonmq/carillon/client"
)

// A cursor is anybody's text.
func FuzzResume_readsWhatCursorWritesAndRefusesTheRest(f *testing.F) {
	question := digest([16]byte{1}, client.Filter{})
	f.Add([]byte{1})
	f.Add(append(append([]byte{1}, question...), 0))
	whole, err := base64.RawURLEncoding.DecodeString(cursor([]*tail{{Partition: &Partition{TopicID: [16]byte{2}, Number: 7}, before: 1 << 40}, {Partition: &Partition{TopicID: [16]byte{1}}, before: 3}}, question))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		places, err := resume(base64.RawURLEncoding.EncodeToString(b), question)
		if err != nil {
			if !errors.Is(err, client.ErrBadRequest) {
				t.Error(err)
			}
			return
		}
		var tails []*tail
		for at, before := range places {
			if at.number < 0 || before < 0 {
				t.Errorf("%x: %v at %d", b, at, before)
			}
			tails = append(tails, &tail{Partition: &Partition{TopicID: at.topicID, Number: at.number}, before: before})
		}
		again, err := resume(cursor(tails, question), question)
		if err != nil || len(again) != len(places) {
			t.Errorf("%x: %v, %v", b, again, err)
		}
		for at, before := range places {
			if again[at] != before {
				t.Errorf("%x: %v at %d, again at %d", b, at, before, again[at])
			}
		}
	})
}
