package message

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonmq/carillon/storage"
)

// someMessages are what the golden files hold, one line of hexadecimal each.
var someMessages = []Message{
	{Partition: -1},
	{
		ID:          "invoice-7",
		Origin:      Origin{"orders.delay", 3, 123456789},
		PlannedFor:  1790000000123,
		Partition:   11,
		Partitioner: CRC32,
		Key:         []byte("key"),
		Value:       []byte("value"),
		Headers:     []Header{{"a", []byte("1")}, {"a", nil}, {"", []byte{}}},
	},
	{
		Origin:      Origin{"ä.delay", math.MaxInt32, math.MaxInt64},
		PlannedFor:  -1,
		Partition:   math.MaxInt32,
		Partitioner: SamePartition,
		Key:         []byte{},
		Value:       []byte{0, 255},
	},
	{
		Origin:     Origin{"orders.delay", 0, 1},
		PlannedFor: 1790000000123,
		Overdue:    86400000,
		Partition:  -1,
	},
	{
		ID:         "invoice-7",
		Origin:     Origin{"orders.delay", 3, 123456789},
		PlannedFor: 1790000000123,
		Overdue:    5,
		Partition:  -1,
		Key:        []byte("key"),
		Headers:    []Header{{"a", nil}},
	},
	{
		Origin:       Origin{"orders.delay", 0, 1},
		PlannedFor:   1790000000123,
		Partition:    -1,
		DeadLetter:   true,
		ValueDropped: true,
		Headers:      []Header{{"a", []byte("1")}},
	},
}

// Stored messages outlive a release: these forms are read for ever, so a change is a new version
// with a file of its own.
func TestBody_isWhatTheGoldenFilesHold(t *testing.T) {
	for path, written := range map[string]struct {
		level    storage.Level
		messages []Message
	}{
		"testdata/v1-message.golden": {storage.LevelOne, someMessages[:3]},
		"testdata/v2-message.golden": {storage.LevelOne, someMessages[3:4]},
		"testdata/v3-message.golden": {storage.LevelTwo, someMessages[4:]},
		"testdata/v4-message.golden": {storage.LevelThree, someMessages},
	} {
		messages := written.messages
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(string(golden))
		if len(lines) != len(messages) {
			t.Fatalf("%s has %d lines, want %d", path, len(lines), len(messages))
		}
		for i, m := range messages {
			entry := m.Entry(m.PlannedFor, "target", written.level)
			if got := hex.EncodeToString(entry.Body); got != lines[i] {
				t.Errorf("%s, line %d: message is stored as\n%s, want\n%s", path, i+1, got, lines[i])
			}
			if entry.Body, err = hex.DecodeString(lines[i]); err != nil {
				t.Fatal(err)
			}
			back, err := FromEntry(&entry)
			if err != nil {
				t.Fatalf("%s, line %d: %v", path, i+1, err)
			}
			if diff := cmp.Diff(m, back); diff != "" {
				t.Errorf("%s, line %d (-want +got):\n%s", path, i+1, diff)
			}
		}
	}
}

func TestBody_comesBackAsItWas(t *testing.T) {
	nullable := rapid.OneOf(rapid.Just[[]byte](nil), rapid.SliceOf(rapid.Byte()))
	rapid.Check(t, func(t *rapid.T) {
		m := Message{
			ID:          rapid.String().Draw(t, "id"),
			Origin:      Origin{rapid.String().Draw(t, "topic"), rapid.Int32().Draw(t, "from"), rapid.Int64().Draw(t, "offset")},
			PlannedFor:  rapid.Int64().Draw(t, "planned for"),
			Overdue:     rapid.Int64().Draw(t, "overdue"),
			Partition:   rapid.Int32().Draw(t, "partition"),
			Partitioner: Partitioner(rapid.IntRange(0, 3).Draw(t, "partitioner")),
			Key:         nullable.Draw(t, "key"),
			Value:       nullable.Draw(t, "value"),
		}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			m.Headers = append(m.Headers, Header{rapid.String().Draw(t, "header"), nullable.Draw(t, "header value")})
		}
		level := storage.Level(rapid.Uint32Range(1, 3).Draw(t, "level"))
		if level >= storage.LevelThree {
			m.Expires = rapid.Int64().Draw(t, "expires")
		}
		if level >= storage.LevelTwo {
			m.DeadLetter, m.ValueDropped = rapid.Bool().Draw(t, "dead letter"), rapid.Bool().Draw(t, "value dropped")
		}
		entry := m.Entry(0, "target", level)
		if got := m.AppendBody([]byte("before"), level)[len("before"):]; !bytes.Equal(got, entry.Body) {
			t.Fatalf("behind other bytes it is %x, alone %x", got, entry.Body)
		}
		back, err := FromEntry(&entry)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, back); diff != "" {
			t.Fatalf("message (-want +got):\n%s", diff)
		}
	})
}

func TestFromEntry_refusesWhatIsCutOrLonger(t *testing.T) {
	for i, m := range someMessages {
		body := m.AppendBody(nil, storage.Level(2+i%2))
		for n := range body {
			if _, err := FromEntry(&storage.Entry{Body: body[:n]}); !errors.Is(err, errBody) {
				t.Errorf("message %d cut to %d of %d bytes: error %v, want errBody", i, n, len(body), err)
			}
		}
		if _, err := FromEntry(&storage.Entry{Body: append(body, 0)}); !errors.Is(err, errBody) {
			t.Errorf("message %d and a byte more: error %v, want errBody", i, err)
		}
	}
}

// A newer leader may have written it: that is not damage, and another remedy.
func TestFromEntry_tellsANewerVersionFromADamagedBody(t *testing.T) {
	body := someMessages[1].AppendBody(nil, storage.LevelTwo)
	for version, want := range map[byte]error{0: errBody, bodyVersionNamed + 1: errBodyNewer, 255: errBodyNewer} {
		body[0] = version
		if _, err := FromEntry(&storage.Entry{Body: body}); !errors.Is(err, want) {
			t.Errorf("version %d: error %v, want %v", version, err, want)
		}
	}
}

func TestMessage_isNamedByItsOriginUnlessTheCallerChose(t *testing.T) {
	m := Message{Origin: Origin{"orders.delay", 3, 42}}
	if got := m.Name(); got != "orders.delay/3/42" {
		t.Errorf("name %q, want the origin", got)
	}
	m.ID = "mine"
	if got := m.Name(); got != "mine" {
		t.Errorf("name %q, want the caller's id", got)
	}
}

// What nobody wrote as a record is named by the seq that it has, or had before it was changed.
func TestOrigin_withoutARecordIsTheFirstSeq(t *testing.T) {
	m := Message{ID: "api/0000000000000000000000000J", Origin: Origin{"orders.delay", NoPartition, 0}, Partition: -1}
	for range 2 { // changed, it keeps the first
		entry := m.Entry(7, "orders", storage.LevelFour)
		entry.Seq = uint64(41 + m.Origin.Offset)
		var err error
		if m, err = FromEntry(&entry); err != nil {
			t.Fatal(err)
		}
		headers := m.AppendDeliveredHeaders(nil, [16]byte{}, entry.Seq)
		if from := string(headers[2].Value); m.Origin.String() != "api/41" || from != "api/41" || m.Origin.Topic != "orders.delay" {
			t.Errorf("seq %d comes from %+v, delivered-from %s, want api/41", entry.Seq, m.Origin, from)
		}
	}
	letter := m.AsDeadLetter(Problem{CodeMalformed, "why"}, 9)
	if letter.Origin != m.Origin || letter.Name() != "api/41" {
		t.Errorf("its dead letter is %s from %+v", letter.Name(), letter.Origin)
	}
}

// FuzzFromEntry: whatever the bytes, no panic, and what can be read can be
// written and read again.
func FuzzFromEntry(f *testing.F) {
	for _, m := range someMessages {
		f.Add(m.AppendBody(nil, storage.LevelOne))
		f.Add(m.AppendBody(nil, storage.LevelTwo))
		f.Add(m.AppendBody(nil, storage.LevelThree))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := FromEntry(&storage.Entry{Topic: "in.delay", ID: "i", Body: body})
		if err != nil {
			return
		}
		once := m.Entry(0, "target", storage.LevelThree)
		back, err := FromEntry(&once)
		if err != nil {
			t.Fatalf("message %+v cannot be read back: %v", m, err)
		}
		if twice := back.AppendBody(nil, storage.LevelThree); !bytes.Equal(once.Body, twice) {
			t.Errorf("message %+v changed to %+v", m, back)
		}
	})
}
