package deadletter

import (
	"encoding/base64"
	"errors"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/client"
)

// A cursor is anybody's text, also behind a seal that fits: what it names are places, and it is told again alike.
func FuzzResume_readsWhatCursorWritesAndRefusesTheRest(f *testing.F) {
	question := digest([16]byte{1}, client.Filter{})
	f.Add([]byte{}, false)
	f.Add([]byte{0}, true)
	whole, err := base64.RawURLEncoding.DecodeString(someCursor(question))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[1+sealSize:], true)
	f.Add(whole, false)
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if sealed {
			b = slices.Concat([]byte{cursorVersion}, seal(question, b), b)
		}
		text := base64.RawURLEncoding.EncodeToString(b)
		places, err := resume(text, question)
		if err != nil {
			expectRefused(t, "anything", text, question)
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
		if text != "" && err != nil || len(again) != len(places) {
			t.Errorf("%x: %v, %v", b, again, err)
		}
		for at, before := range places {
			if again[at] != before {
				t.Errorf("%x: %v at %d, again at %d", b, at, before, again[at])
			}
		}
	})
}

// someCursor names two partitions.
func someCursor(question []byte) string {
	return cursor([]*tail{{Partition: &Partition{TopicID: [16]byte{2}, Number: 7}, before: 1 << 40}, {Partition: &Partition{TopicID: [16]byte{1}}, before: 3}}, question)
}

// A slip in copying a cursor never leaves out a dead letter.
func TestCursor_isRefusedWithAnyBitChangedAndForAnotherQuestion(t *testing.T) {
	filter := client.Filter{Topic: "orders.delay"}
	question := digest([16]byte{1}, filter)
	text := someCursor(question)
	if places, err := resume(text, question); err != nil || len(places) != 2 {
		t.Fatalf("%v, %v", places, err)
	}
	for i := range len(text) * 8 {
		damaged := []byte(text)
		damaged[i/8] ^= 1 << (i % 8)
		expectRefused(t, "damaged", string(damaged), question)
	}
	for i := 1; i < len(text); i++ {
		expectRefused(t, "cut", text[:i], question)
		expectRefused(t, "broken", text[:i]+"\n"+text[i:], question)
	}
	expectRefused(t, "of another cluster", text, digest([16]byte{2}, filter))
	expectRefused(t, "of another filter", text, digest([16]byte{1}, client.Filter{Topic: "orders.delay", Code: "malformed"}))
}

func expectRefused(t *testing.T, name, text string, question []byte) {
	t.Helper()
	_, err := resume(text, question)
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Code != client.CodeBadRequest || p.Field != "cursor" || p.Value == "" {
		t.Errorf("%s: %q is answered %v", name, text, err)
	}
}
