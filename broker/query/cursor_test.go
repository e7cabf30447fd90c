package query

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// A cursor leads back to its place with the question that it came with, and is refused with any other, of any
// other cluster, and with any bit of its text changed.
func FuzzCursor_leadsToItsPlaceAloneAndWithItsQuestion(f *testing.F) {
	f.Add(int64(0), uint64(0), "", "")
	f.Add(int64(-1), uint64(1)<<63, "orders.delay", "bills.delay")
	f.Add(int64(946_684_800_000), uint64(42), "orders.delay", "")
	f.Fuzz(func(t *testing.T, due int64, seq uint64, topic, other string) {
		m := matcher{Filter: client.Filter{Topic: topic}, cluster: [16]byte{1}}
		at := storage.Ref{Due: due, Seq: seq}
		text := m.cursor(at)
		if got, err := m.resume(text); got != at || err != nil {
			t.Fatalf("%q leads to %v, %v, want %v", text, got, err, at)
		}
		for _, asked := range []client.Filter{{Topic: other}, {Topic: topic + "x"}, {Topic: topic, Prefix: "a"}, {Topic: topic, To: 1}, {Topic: topic, States: []string{"waiting"}}} {
			if textOf(asked) != textOf(m.Filter) {
				expectRefused(t, "of another filter", &matcher{Filter: asked, cluster: m.cluster}, text)
			}
		}
		expectRefused(t, "of another cluster", &matcher{Filter: m.Filter, cluster: [16]byte{1, 15: 1}}, text)
		for i := range len(text) {
			for bit := range 8 {
				damaged := []byte(text)
				damaged[i] ^= 1 << bit
				expectRefused(t, "damaged", &m, string(damaged))
			}
			expectRefused(t, "cut", &m, text[:i])
			expectRefused(t, "broken", &m, text[:i]+"\n"+text[i:])
		}
		expectRefused(t, "continued", &m, text+"A")
	})
}

// A cursor is anybody's text: it is one that was given out, or refused.
func FuzzResume_takesNothingThatWasNotGivenOut(f *testing.F) {
	m := matcher{Filter: client.Filter{Target: "orders"}, cluster: [16]byte{1}}
	whole := m.cursor(storage.Ref{Due: 1, Seq: 2})
	for _, text := range []string{whole, whole + "\n", "AQ", "=", "\xff", base64.RawURLEncoding.EncodeToString(make([]byte, cursorSize))} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" {
			return
		}
		at, err := m.resume(text)
		if err == nil && m.cursor(at) != text {
			t.Errorf("%q is taken for %q", text, m.cursor(at))
		}
		if err != nil {
			expectRefused(t, "anything", &m, text)
		}
	})
}

// expectRefused fails unless the text is refused as the document says: 400, the field and what is there. An empty one is none.
func expectRefused(t *testing.T, name string, m *matcher, text string) {
	t.Helper()
	if text == "" {
		return
	}
	_, err := m.resume(text)
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Code != client.CodeBadRequest || p.Field != "cursor" || p.Value == "" {
		t.Errorf("%s: %q is answered %v", name, text, err)
	}
}

// textOf is a filter as it was asked for: what is no UTF-8 is told by a mark.
func textOf(f client.Filter) string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return string(text)
}
