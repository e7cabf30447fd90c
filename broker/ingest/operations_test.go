package ingest

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/logtest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

const ownCluster = "01000000000000000000000000000000"

func TestOperation_isWhatARecordAsksFor(t *testing.T) {
	later := testNow + 1000
	for name, test := range map[string]struct {
		asks    Instruction
		want    raftfsm.Operation // without the body
		foreign string
	}{
		"plain":             {Instruction{DueAt: int64(later), Partition: -1}, raftfsm.Operation{Verb: raftfsm.Schedule, Entry: storage.Entry{Due: int64(later), Target: "orders"}}, ""},
		"id":                {Instruction{DueAt: int64(later), Partition: -1, ID: "i"}, raftfsm.Operation{Verb: raftfsm.Schedule, Entry: storage.Entry{Due: int64(later), Target: "orders", ID: "i"}}, ""},
		"expires":           {Instruction{DueAt: int64(later), Partition: -1, ID: "i", Expires: 7}, raftfsm.Operation{Verb: raftfsm.Schedule, Entry: storage.Entry{Due: int64(later), Target: "orders", ID: "i", Expires: 7}}, ""},
		"absent":            {Instruction{DueAt: int64(later), Partition: -1, ID: "i", If: raftfsm.Absent}, raftfsm.Operation{Verb: raftfsm.Schedule, If: raftfsm.Absent, Entry: storage.Entry{Due: int64(later), Target: "orders", ID: "i"}}, ""},
		"cancel":            {Instruction{Cancel: true, Partition: -1, ID: "i"}, raftfsm.Operation{Verb: raftfsm.Cancel, Entry: storage.Entry{ID: "i"}}, ""},
		"cancel, no target": {Instruction{Cancel: true, Partition: -1, ID: "i", To: "__secret"}, raftfsm.Operation{Verb: raftfsm.Cancel, Entry: storage.Entry{ID: "i"}}, ""},
		"a seq":             {Instruction{Cancel: true, Partition: -1, ID: "i", If: raftfsm.Exactly, Seq: 9}, raftfsm.Operation{Verb: raftfsm.Cancel, If: raftfsm.Exactly, Seq: 9, Entry: storage.Entry{ID: "i"}}, ""},
		"a seq of ours":     {Instruction{Cancel: true, Partition: -1, ID: "i", If: raftfsm.Exactly, Seq: 9, Cluster: ownCluster}, raftfsm.Operation{Verb: raftfsm.Cancel, If: raftfsm.Exactly, Seq: 9, Entry: storage.Entry{ID: "i"}}, ""},
		"a seq of another":  {Instruction{Cancel: true, Partition: -1, ID: "i", If: raftfsm.Exactly, Seq: 9, Cluster: "02"}, raftfsm.Operation{Verb: raftfsm.Cancel, If: raftfsm.Exactly, Entry: storage.Entry{ID: "i"}}, "02"},
	} {
		test.want.Entry.Topic = "orders.delay"
		headers := []message.Header{{Key: client.HeaderIf, Value: []byte("x")}, {Key: client.HeaderExpiresAt}}
		r := testReading(openIDs(), Arrival{Value: make([]byte, MostRecord/2), Headers: headers, Instruction: test.asks})
		if diff := cmp.Diff(test.want, r.operation, cmpopts.IgnoreFields(storage.Entry{}, "Body")); diff != "" || r.problem != nil || r.foreign != test.foreign {
			t.Errorf("%s: problem %v, names cluster %q\n%s", name, r.problem, r.foreign, diff)
		}
		if (r.operation.Entry.Body != nil) == test.asks.Cancel {
			t.Errorf("%s: body of %d bytes", name, len(r.operation.Entry.Body))
		}
		if test.asks.Cancel {
			continue
		}
		m, err := message.FromEntry(&r.operation.Entry)
		if err != nil || m.ID != test.asks.ID || m.Origin.String() != "orders.delay/1/0" || m.Expires != test.asks.Expires {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// A cancel is a few bytes in the log, whatever the record carries.
func TestOperation_ofACancelStoresNothingOfTheRecord(t *testing.T) {
	a := Arrival{Value: make([]byte, 2*MostRecord), Instruction: Instruction{Cancel: true, Partition: -1, ID: "i"}}
	if r := testReading(openIDs(), a); r.problem != nil || r.operation.Verb != raftfsm.Cancel || r.operation.Entry.Body != nil {
		t.Errorf("%+v", r)
	}
	a.Headers = []message.Header{{Key: client.HeaderCancel, Value: []byte("true")}}
	r := testReading(atLevel(storage.LevelTwo), a)
	if r.problem == nil || len(r.operation.Entry.Body) > raftfsm.MaxCommandBytes/2 {
		t.Errorf("refused below the level with %d bytes: %v", len(r.operation.Entry.Body), r.problem)
	}
}

// Until then a message of an older form may have the id, and nobody would know.
func TestOperation_waitsForIDsToBeOpen(t *testing.T) {
	a := Arrival{Value: []byte("v"), Instruction: Instruction{DueAt: testNow, Partition: -1, ID: "i"}}
	r := testReading(atLevel(storage.LevelThree), a)
	m, err := message.FromEntry(&storage.Entry{Body: r.operation.Entry.Body})
	if err != nil || r.problem != nil || r.open || m.ID != "i" || m.Origin.Topic != "orders.delay" || r.operation.Entry.ID != "" {
		t.Errorf("%+v, %+v, %v", r, m, err)
	}
	for _, name := range []string{client.HeaderCancel, client.HeaderIf, client.HeaderExpiresAt, client.HeaderExpiresAfter} {
		a.Headers = []message.Header{{Key: name, Value: []byte("x")}}
		for _, level := range []storage.Level{storage.LevelThree, storage.LevelFour} {
			r := testReading(atLevel(level), a)
			if r.problem == nil || r.problem.Code != message.CodeUnsupported || !strings.HasPrefix(r.problem.Message, name+" is not served yet") {
				t.Errorf("%s at level %d: %+v", name, level, r.problem)
			}
		}
	}
}

// From level four on the log is told which record a condition came with, also where it begins a command.
func TestOperation_saysWhichRecordAConditionIsOf(t *testing.T) {
	for level, want := range map[storage.Level][]int64{storage.LevelThree: nil, storage.LevelFour: {8, 11, 13}} {
		g := New(Options{ClaimLead: lead, Config: config.Default(), Store: levelStore{level: level, open: true}, Now: time.Now, Due: time.Now, Logger: slog.New(slog.DiscardHandler)})
		var told []int64
		commands := 0
		pack := packer{most: 400, lead: lead, propose: func(c raftfsm.Ingest, _ []packedPart) error {
			commands++
			for _, p := range c.Parts {
				for _, o := range p.Operations {
					if o.Record > 0 {
						told = append(told, p.From+int64(o.Record)-1)
					}
				}
			}
			if c.Size() > 400 {
				t.Errorf("a command of %d bytes", c.Size())
			}
			return nil
		}}
		long := strings.Repeat("i", 200)
		batch := Batch{Topic: "orders.delay", Partition: 3, From: 5, Next: 20, Arrivals: []Arrival{
			{Offset: 7, Instruction: Instruction{Partition: -1, ID: "a"}},
			{Offset: 8, Instruction: Instruction{Partition: -1, ID: long, If: raftfsm.Absent}},
			{Offset: 11, Instruction: Instruction{Partition: -1, ID: long, If: raftfsm.Present}},
			{Offset: 12, Instruction: Instruction{Partition: -1, ID: "b", Cancel: true}},
			{Offset: 13, Instruction: Instruction{Partition: -1, ID: "b", Cancel: true, If: raftfsm.Exactly, Seq: 9}},
		}}
		if err := g.pack(&pack, &batch); err != nil {
			t.Fatal(err)
		}
		if err := pack.flush(testNow); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(told, want) || commands < 2 {
			t.Errorf("level %d: told of records %v in %d commands, want %v", level, told, commands, want)
		}
	}
}

// An answeredCount is a Count.
type answeredCount struct {
	refusedCount
	answers map[string]int
}

func (c answeredCount) Answered(answer string, records int) { c.answers[answer] += records }

func TestIngest_logsAndCountsWhatIsAnswered(t *testing.T) {
	var lines logtest.Lines
	counts := answeredCount{refusedCount{}, map[string]int{}}
	g := New(Options{ClaimLead: lead, Config: config.Default(), Count: counts, Store: openIDs(), Now: time.Now, Due: time.Now, Logger: lines.Logger()})
	var command raftfsm.Ingest
	var parts []packedPart
	pack := packer{most: raftfsm.ProposalBytes, lead: lead, propose: func(c raftfsm.Ingest, packed []packedPart) error {
		command, parts = c, packed
		return nil
	}}
	batch := Batch{Topic: "orders.delay", Partition: 3, From: 7, Next: 12, Arrivals: []Arrival{
		{Offset: 7, Instruction: Instruction{Partition: -1, ID: "a"}},
		{Offset: 8, Instruction: Instruction{Partition: -1}},
		{Offset: 9, Problem: &message.Problem{Code: message.CodeMalformed, Message: "deliver-at \"soon\""}},
		{Offset: 10, Instruction: Instruction{Partition: -1, Cancel: true, ID: "b"}},
		{Offset: 11, Instruction: Instruction{Partition: -1, ID: "c", If: raftfsm.Exactly, Seq: 5, Cluster: "02"}},
	}}
	if err := g.pack(&pack, &batch); err != nil {
		t.Fatal(err)
	}
	if err := pack.flush(testNow); err != nil {
		t.Fatal(err)
	}
	operations := command.Parts[0].Operations
	if len(operations) != 5 || len(command.Parts[0].Entries) != 0 || command.Parts[0].Next != 12 {
		t.Fatalf("%d operations, %d entries, up to %d", len(operations), len(command.Parts[0].Entries), command.Parts[0].Next)
	}
	answers := []raftfsm.Answer{{Code: raftfsm.Superseded, Seq: 41, Before: 40}, {Code: raftfsm.Scheduled, Seq: 42}, {Code: raftfsm.Scheduled, Seq: 43}, {Code: raftfsm.NotFound}, {Code: raftfsm.Conflict, Seq: 39}}
	if without := g.tellAnswers(parts[0], answers); without != 2 {
		t.Errorf("%d scheduled nothing, want 2", without)
	}
	g.conflicts.Close()
	want := []string{`level=INFO msg="records without effect, since their condition does not hold" component=ingest records=1 topics=1 topic=orders.delay partition=3 offset=11 id=c seq=39 names_cluster=02`}
	if diff := cmp.Diff(want, lines.With("condition")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := slices.Sorted(maps.Keys(counts.answers)); !slices.Equal(got, []string{"conflict", "not-found", "replaced"}) {
		t.Errorf("counted %v", counts.answers)
	}

	g.log = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if err := g.pack(&pack, &batch); err != nil {
		t.Fatal(err)
	}
	if err := pack.flush(testNow); err != nil {
		t.Fatal(err)
	}
	g.tellAnswers(parts[0], answers)
	if each := lines.With("level=DEBUG"); len(each) != 3 || !strings.Contains(each[0], "answer=replaced") || !strings.Contains(each[0], "offset=7 id=a seq=41") {
		t.Errorf("logged %q", each)
	}
}

// Each of them may have to be looked up on disk, and nothing else is applied meanwhile.
func TestPacker_boundsTheLookUpsOfACommand(t *testing.T) {
	var asked, records []int
	next := int64(7)
	pack := packer{most: raftfsm.ProposalBytes, lead: lead, propose: func(c raftfsm.Ingest, packed []packedPart) error {
		if c.Parts[0].From != next {
			t.Errorf("a command from %d, after one up to %d", c.Parts[0].From, next)
		}
		next = c.Parts[0].Next
		asked, records = append(asked, packed[0].records-packed[0].plain), append(records, packed[0].records)
		return nil
	}}
	g := New(Options{ClaimLead: lead, Config: config.Default(), Count: refusedCount{}, Store: openIDs(), Now: time.Now, Due: time.Now, Logger: slog.New(slog.DiscardHandler)})
	batch := Batch{Topic: "orders.delay", From: 7, Next: 7 + 2*5000}
	for i := range int64(5000) {
		batch.Arrivals = append(batch.Arrivals,
			Arrival{Offset: 7 + 2*i, Instruction: Instruction{Partition: -1, Cancel: true, ID: fmt.Sprint(i)}},
			Arrival{Offset: 8 + 2*i, Instruction: Instruction{Partition: -1}})
	}
	if err := g.pack(&pack, &batch); err != nil {
		t.Fatal(err)
	}
	if err := pack.flush(testNow); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked, []int{4096, 904}) || !slices.Equal(records, []int{8191, 1809}) || next != batch.Next {
		t.Errorf("asked %v of %v records, up to %d", asked, records, next)
	}
}

// A command of the usual size costs no memory of its own; one of very many operations does not leave it with the packer.
func TestPacker_keepsRoomForTheNextCommand(t *testing.T) {
	pack := packer{most: raftfsm.MaxCommandBytes, lead: lead, propose: func(raftfsm.Ingest, []packedPart) error { return nil }}
	for _, test := range []struct {
		operations int
		keeps      bool
	}{{100, true}, {mostRoom + 1, false}, {100, true}} {
		batch := Batch{Topic: "orders.delay", Next: int64(test.operations)}
		pack.begin(&batch, testNow, false)
		for i := range int64(test.operations) {
			r := reading{offset: i, open: true, operation: raftfsm.Operation{Verb: raftfsm.Schedule}}
			if err := pack.add(&batch, &r, testNow); err != nil {
				t.Fatal(err)
			}
		}
		pack.end(&batch)
		if err := pack.flush(testNow); err != nil {
			t.Fatal(err)
		}
		if room := cap(pack.operations); (room > 0) != test.keeps || room > mostRoom {
			t.Errorf("after %d operations there is room for %d", test.operations, room)
		}
	}
}
