package ingest

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

const (
	testNow = 1_900_000_000_000
	testDue = testNow - 7 // firing is stopped
)

// testEntry is what a record of orders.delay becomes with the default configuration.
func testEntry(t *testing.T, a Arrival) (entry storage.Entry, m message.Message, poison bool) {
	t.Helper()
	return testEntryAt(t, storage.LevelOne, a)
}

func testEntryAt(t *testing.T, level storage.Level, a Arrival) (entry storage.Entry, m message.Message, poison bool) {
	t.Helper()
	r := testReading(atLevel(level), a)
	m, err := message.FromEntry(&r.operation.Entry)
	if err != nil {
		t.Fatal(err)
	}
	return r.operation.Entry, m, r.problem != nil
}

// testReading is what a record of orders.delay becomes beside that store.
func testReading(store Store, a Arrival) reading {
	g := New(Options{Config: config.Default(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	route := config.Default().Routes[0]
	to := g.judge.destination(route, "orders.delay", a.Instruction.To)
	return g.judge.read(&to, message.Origin{Topic: "orders.delay", Partition: 1, Offset: a.Offset}, &a, g.form(), moments{now: testNow, due: testDue, reached: store.Time()})
}

// A levelStore is an empty store of a cluster at that level, of the id
// 01000000000000000000000000000000.
type levelStore struct {
	Store
	level storage.Level
	open  bool
	time  int64
}

func (s levelStore) State() storage.State { return storage.State{ClusterID: [16]byte{1}} }
func (s levelStore) Level() storage.Level { return s.level }
func (s levelStore) IDsOpen() bool        { return s.open }
func (s levelStore) Time() int64          { return s.time }

func atLevel(level storage.Level) levelStore { return levelStore{level: level} }

// openIDs is one where ids are open.
func openIDs() levelStore { return levelStore{level: storage.LevelThree, open: true} }

func header(m message.Message, key string) string {
	i := slices.IndexFunc(m.Headers, func(h message.Header) bool { return h.Key == key })
	if i < 0 {
		return ""
	}
	return string(m.Headers[i].Value)
}

// testCommand returns the size of the command that proposes the entry.
func testCommand(t *testing.T, entry storage.Entry) (size int) {
	t.Helper()
	pack := packer{most: raftfsm.ProposalBytes, lead: lead, propose: func(command raftfsm.Ingest, _ []packedPart) error {
		size = command.Size()
		return nil
	}}
	batch := Batch{Topic: "orders.delay", Next: 1}
	pack.begin(&batch, testNow, false)
	if err := pack.add(&batch, &reading{operation: raftfsm.Operation{Verb: raftfsm.Schedule, Entry: entry}}, testNow); err != nil {
		t.Fatal(err)
	}
	pack.end(&batch)
	if err := pack.flush(testNow); err != nil {
		t.Fatal(err)
	}
	return size
}

func TestEntry_tooLargeForTheScheduleIsADeadLetterThatFitsIt(t *testing.T) {
	soon := Instruction{DueAt: testNow + 1000, Partition: -1}
	kept := []message.Header{{Key: "a", Value: []byte("b")}}
	for _, test := range []struct {
		what    string
		arrival Arrival
		poison  bool
		dropped string // bytes of the value
		keeps   bool   // key and headers
	}{
		{"just small enough", Arrival{Key: []byte("k"), Value: make([]byte, MostRecord-5), Headers: kept, Instruction: soon}, false, "", true},
		{"a value", Arrival{Key: []byte("k"), Value: make([]byte, MostRecord), Headers: kept, Instruction: soon}, true, "16777216", true},
		{"a value that cannot be read", Arrival{Key: []byte("k"), Value: make([]byte, 50_000_000), Headers: kept, Problem: &message.Problem{Code: message.CodeMalformed, Message: "no time"}}, true, "50000000", true},
		{"a key", Arrival{Key: make([]byte, 50_000_000), Value: []byte("v"), Headers: kept, Instruction: soon}, true, "1", false},
		{"a header", Arrival{Key: []byte("k"), Headers: []message.Header{{Key: "a", Value: make([]byte, 50_000_000)}}, Instruction: soon}, true, "0", false},
		{"very many headers", Arrival{Key: []byte("k"), Headers: make([]message.Header, 10_000_000), Instruction: soon}, true, "0", false},
	} {
		entry, m, poison := testEntry(t, test.arrival)
		if size := testCommand(t, entry); size > raftfsm.MaxCommandBytes/2 {
			t.Errorf("%s: a command of %d bytes", test.what, size)
		}
		if poison != test.poison || header(m, client.HeaderErrorValueDropped) != test.dropped {
			t.Errorf("%s: dead letter %v, without %q bytes", test.what, poison, header(m, client.HeaderErrorValueDropped))
		}
		if keeps := string(m.Key) == "k" && header(m, "a") == "b"; keeps != test.keeps {
			t.Errorf("%s: keeps key and headers: %v", test.what, keeps)
		}
		if !test.poison {
			continue
		}
		if m.Value != nil || header(m, client.HeaderErrorCode) != message.CodeTooLarge || entry.Target != "carillon.dead-letter" {
			t.Errorf("%s: for %s, code %q, value of %d bytes", test.what, entry.Target, header(m, client.HeaderErrorCode), len(m.Value))
		}
		for at, want := range map[int64]int64{0: testDue, -1: testDue, testNow: testDue, testDue - 60: testDue - 60} {
			test.arrival.Time = at
			if entry, m, _ := testEntry(t, test.arrival); entry.Due != want || m.PlannedFor != want || m.Overdue != testNow-want {
				t.Errorf("%s: a record of %d is due at %d and overdue by %d, want %d", test.what, at, entry.Due, m.Overdue, want)
			}
		}
	}
}

// An empty header is two bytes in Kafka and in storage, and forty and more wherever it is read.
func TestEntry_takesNoRecordOfVeryManyHeaders(t *testing.T) {
	for _, test := range []struct {
		headers int
		message string
	}{
		{MostHeaders, ""},
		{MostHeaders + 1, "record with 10001 headers: send 10000 at most; they are left out here"},
	} {
		_, m, poison := testEntry(t, Arrival{Key: []byte("k"), Value: []byte("v"), Headers: make([]message.Header, test.headers), Instruction: Instruction{DueAt: testNow + 1, Partition: -1}})
		if poison != (test.message != "") || header(m, client.HeaderErrorMessage) != test.message || string(m.Key) != "k" || string(m.Value) != "v" {
			t.Errorf("%d headers: dead letter %t, %q, with key %q and value %q", test.headers, poison, header(m, client.HeaderErrorMessage), m.Key, m.Value)
		}
		if poison && len(m.Headers) > 10 {
			t.Errorf("a dead letter with %d headers", len(m.Headers))
		}
	}
}

func TestEntry_saysHowLongItHadBeenDueAlready(t *testing.T) {
	for dueAt, overdue := range map[int64]int64{testNow + 1: 0, testNow: 0, testNow - 5: 5, 0: testNow, -7: testNow} {
		entry, m, _ := testEntry(t, Arrival{Value: []byte("v"), Instruction: Instruction{DueAt: dueAt, Partition: -1}})
		if m.Overdue != overdue || m.PlannedFor != dueAt || entry.Due != max(dueAt, 0) {
			t.Errorf("due at %d: overdue by %d, want %d; planned for %d, due %d", dueAt, m.Overdue, overdue, m.PlannedFor, entry.Due)
		}
	}
}

func TestEntry_refusesWhatTheConfigurationDoesNotAllow(t *testing.T) {
	year := 365 * 24 * time.Hour.Milliseconds()
	for _, test := range []struct {
		to       string
		dueAt    int64
		code     string
		contains string
	}{
		{"", testNow, "", ""},
		{"bills", testNow, "", ""},
		{"bills", testNow + 101*year, message.CodeBeyondMaxDelay, "later than routes[].max_delay 100y allows"},
		{"__secret", testNow, message.CodeTargetDenied, `topic "__secret" is not among the targets, targets.deny "__*" matches it: take that pattern out or narrow it in the node's configuration, or choose another topic`},
		{"no topic", testNow, message.CodeTargetInvalid, "deliver-to"},
		{"orders.delay", testNow, message.CodeTargetInvalid, `"orders.delay" is a delay topic, routes[].from "*.delay" matches it: choose a topic that no route reads`},
		{"carillon.dead-letter", testNow, message.CodeTargetInvalid, `deliver-to: topic "carillon.dead-letter" is for dead letters, dead_letter names it: choose another topic`},
		{strings.Repeat("t", 250), testNow, message.CodeTargetInvalid, "deliver-to: topic name of 250 characters is too long: give 249 at most"},
		{"bills.delay", testNow, message.CodeTargetInvalid, `"bills.delay" is a delay topic, routes[].from "*.delay" matches it: choose a topic that no route reads`},
	} {
		a := Arrival{Key: []byte("k"), Value: []byte("v"), Instruction: Instruction{DueAt: test.dueAt, To: test.to, Partition: -1}}
		entry, m, poison := testEntry(t, a)
		if code := header(m, client.HeaderErrorCode); code != test.code || poison != (code != "") {
			t.Errorf("to %q: code %q, want %q", test.to, code, test.code)
		}
		if message := header(m, client.HeaderErrorMessage); !strings.Contains(message, test.contains) {
			t.Errorf("to %q: message %q does not say %q", test.to, message, test.contains)
		}
		if !poison && (entry.Due != test.dueAt || !bytes.Equal(m.Value, a.Value)) {
			t.Errorf("to %q: due %d, value %q", test.to, entry.Due, m.Value)
		}
		if want := (message.Origin{Topic: "orders.delay", Partition: 1, Offset: 0}); cmp.Diff(want, m.Origin) != "" {
			t.Errorf("to %q: from %v", test.to, m.Origin)
		}
	}
}

// A node whose clock is years behind takes what is due soon by the time that the schedule has come to.
func TestEntry_isNotDueTooLateByAClockThatIsBehind(t *testing.T) {
	year := 365 * 24 * time.Hour.Milliseconds()
	for _, c := range []struct {
		reached, dueAt int64
		refused        bool
	}{
		{testNow, testNow + 101*year, true},
		{testNow + 2*year, testNow + 101*year, false},
		{testNow + 2*year, testNow + 103*year, true},
	} {
		store := atLevel(storage.LevelTwo)
		store.time = c.reached
		r := testReading(store, Arrival{Instruction: Instruction{DueAt: c.dueAt, Partition: -1}})
		if (r.problem != nil) != c.refused {
			t.Errorf("due at %d, the schedule's time %d: %v", c.dueAt, c.reached, r.problem)
		}
		if due := r.operation.Entry.Due; c.refused && due != testDue {
			t.Errorf("the letter is due at %d, want %d", due, testDue)
		}
	}
}

// A pattern more in targets.deny lets nothing through, nor does one in targets.allow what is denied.
func TestConfig_saysWhichOfTheTargetsPatternsToChange(t *testing.T) {
	c := config.Default()
	c.Targets = config.Targets{Allow: []string{"bills", "__*"}, Deny: []string{"x", "__secret"}}
	for topic, want := range map[string]string{
		"orders":   "no pattern of targets.allow matches it: extend targets.allow in",
		"__secret": `targets.deny "__secret" matches it: take that pattern out or narrow it in`,
		"__open":   "",
	} {
		_, problem := c.Destination(c.Routes[0], "orders.delay", topic)
		if (problem != nil) != (want != "") || problem != nil && !strings.Contains(problem.Message, want) {
			t.Errorf("%s: %+v, want %q", topic, problem, want)
		}
	}
}

func TestConfig_blamesWhatNamedTheTarget(t *testing.T) {
	c := config.Default()
	bills := config.NewRoute("bills-*")
	bills.To, bills.DeadLetter = "__secret", "bills.dead"
	c.Routes = append(c.Routes, bills)
	for _, test := range []struct {
		topic, deliverTo, want string
	}{
		{"orders.delay", "bills", ""},
		{"orders.delay", "bills.dead", `deliver-to: topic "bills.dead" is for dead letters`},
		{"bills-1", "", ""}, // its routes[].to is refused once, by Validate
		{"bills-1", "orders", ""},
		{"__secret.delay", "", `name of delay topic "__secret.delay": topic "__secret" is not among the targets`},
		{".delay", "", `name of delay topic ".delay": topic name is empty`},
		{"orders.delay.delay", "", `name of delay topic "orders.delay.delay": topic "orders.delay" is a delay topic`},
		{"bills.dead.delay", "", `name of delay topic "bills.dead.delay": topic "bills.dead" is for dead letters`},
		{"carillon.dead-letter.delay", "", `name of delay topic "carillon.dead-letter.delay": topic "carillon.dead-letter" is for dead letters`},
	} {
		route, _ := c.Route(test.topic)
		_, problem := c.Destination(route, test.topic, test.deliverTo)
		if (problem != nil) != (test.want != "") || problem != nil && !strings.HasPrefix(problem.Message, test.want) {
			t.Errorf("%s to %q: %+v, want %q", test.topic, test.deliverTo, problem, test.want)
		}
	}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), `routes[1].to is "__secret"`) {
		t.Errorf("Validate: %v, want a word on routes[1].to", err)
	}
}

// Below LevelTwo the stored form could not tell the message from a dead letter. Then it is
// made one, by us, and its producer told.
func TestEntry_isNoDeadLetterForWhatItsProducerWrote(t *testing.T) {
	source := message.Message{Origin: message.Origin{Topic: "orders.delay", Partition: 1, Offset: 7}}
	forged := source.AsDeadLetter(message.Problem{Code: message.CodeMalformed, Message: "forged"}, 0)
	for level, refused := range map[storage.Level]bool{storage.LevelOne: true, storage.LevelTwo: false} {
		a := Arrival{Offset: 7, Value: []byte("v"), Instruction: Instruction{DueAt: testNow + 1000, Partition: -1}}
		a.Headers = append([]message.Header{{Key: "a", Value: nil}, {Key: client.HeaderErrorValueDropped, Value: []byte("1")}}, forged.Headers...)
		entry, m, poison := testEntryAt(t, level, a)
		if poison != refused || m.DeadLetter != refused || m.ValueDropped {
			t.Errorf("level %d: refused %v, a dead letter %v, without its value %v, want %v, %v and false", level, poison, m.DeadLetter, m.ValueDropped, refused, refused)
		}
		if kept := m.Headers[:len(a.Headers)]; cmp.Diff(a.Headers, kept) != "" {
			t.Errorf("level %d: headers %v, want those of the record first", level, m.Headers)
		}
		added := m.Headers[len(a.Headers):]
		if !refused {
			if entry.Target != "orders" || len(added) != 0 {
				t.Errorf("level %d: for %s, with headers %v added", level, entry.Target, added)
			}
			continue
		}
		if text := string(added[1].Value); entry.Target != "carillon.dead-letter" || !strings.Contains(text, "send it without its headers __carillon.errors.*") {
			t.Errorf("level %d: for %s: %s", level, entry.Target, text)
		}
	}
}

// Below the level that brought it a node may come to lead that does not know the header.
func TestEntry_takesAHeaderOnlyWhereAllNodesKnowIt(t *testing.T) {
	for name, levels := range map[string]map[storage.Level]string{
		client.HeaderKeyBase64:    {storage.LevelOne: message.CodeUnsupported, storage.LevelTwo: ""},
		client.HeaderExpiresAt:    {storage.LevelOne: message.CodeUnsupported, storage.LevelTwo: message.CodeUnsupported},
		client.HeaderExpiresAfter: {storage.LevelTwo: message.CodeUnsupported},
		client.HeaderIf:           {storage.LevelTwo: message.CodeUnsupported},
		client.HeaderCancel:       {storage.LevelTwo: message.CodeUnsupported},
	} {
		for level, want := range levels {
			a := Arrival{Value: []byte("v"), Instruction: Instruction{DueAt: testNow, Partition: -1}, Headers: []message.Header{{Key: name, Value: []byte("AAD/")}}}
			_, m, _ := testEntryAt(t, level, a)
			if code := header(m, client.HeaderErrorCode); code != want || m.DeadLetter != (want != "") {
				t.Errorf("%s at level %d: code %q, want %q", name, level, code, want)
			}
			if why := header(m, client.HeaderErrorMessage); want != "" && (!strings.HasPrefix(why, name+" is known from feature level") || !strings.Contains(why, "upgrade all nodes and raise the level")) {
				t.Errorf("%s at level %d: %s", name, level, why)
			}
		}
	}
}
