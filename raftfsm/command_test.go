package raftfsm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/carillonmq/carillon/storage/bulk"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/outcomes"
	"github.com/carillonmq/carillon/storage/pause"
	"github.com/carillonmq/carillon/storage/replayed"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

var topicID = [16]byte{0xde, 0xad, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}

// One command of each kind, with what is easily lost: null and empty, negative
// numbers, the greatest numbers.
var samples = map[string]Command{
	"found": Found{Time: 1_700_000_000_000, ClusterID: topicID, Mode: "at-least-once"},
	"ingest": Ingest{Time: 1_700_000_000_000, ClaimThrough: 1_700_000_000_100, Parts: []Part{
		{TopicID: topicID, Topic: "orders.delay", Partition: 7, From: 10, Next: 13, Epoch: -1, Entries: []storage.Entry{
			{Due: 1_800_000_000_000, Target: "orders", Body: []byte("payload")},
			{Due: 0, Target: "orders", Body: []byte{}},
			{Due: -1, Target: "", Body: nil},
		}},
		{TopicID: topicID, Topic: "orders.delay", Partition: 8, From: 0, Next: 1 << 62, Epoch: 3, Entries: []storage.Entry{}},
	}},
	"set-positions": SetPositions{Time: 1, Surveyed: true, Sets: []PositionSet{
		{Position: storage.Position{Topic: "a.delay", TopicID: topicID, Partition: 0, Next: -1, Epoch: -1}, From: FromAbsent},
		{Position: storage.Position{Topic: "a.delay", TopicID: topicID, Partition: 1, Next: 5, Epoch: 2}, From: -1},
	}},
	"claim": ClaimCommand{Time: 2, Claim: storage.Claim{Through: 99, Mark: storage.Ref{Due: 98, Seq: 1 << 63}, Holds: []storage.Hold{
		{Target: "slow", Through: 50, Mark: storage.Ref{Due: 40, Seq: 4}},
	}}},
	"change-claim": ChangeClaim{Time: 2, ClaimChange: storage.ClaimChange{Through: 99, Mark: storage.Ref{Due: 98, Seq: 1 << 63},
		Set: []storage.Hold{{Target: "slow", Through: 50, Mark: storage.Ref{Due: 40, Seq: 4}}}, Lift: []string{"well", ""}}},
	"ack":         Ack{Time: 3, Runs: []storage.SeqRun{{First: 1, Last: 1}, {First: 5, Last: 900}, {First: 2, Last: 3}}},
	"raise-level": RaiseLevel{Time: 1_700_000_000_000, Level: storage.LevelTwo},
	"ingest-operations": Ingest{Time: 1_700_000_000_000, Parts: []Part{
		{TopicID: topicID, Topic: "orders.delay", Partition: 7, From: 10, Next: 20, Epoch: 1, Entries: []storage.Entry{}, Operations: []Operation{
			{Verb: Schedule, Entry: storage.Entry{Due: 1_800_000_000_000, Target: "orders", Topic: "orders.delay", Body: []byte("payload")}},
			{Verb: Schedule, Entry: storage.Entry{Due: -1, Target: "", Topic: "orders.delay", ID: "one", Expires: math.MinInt64, Body: []byte{}}},
			{Verb: Schedule, If: Exactly, Seq: math.MaxUint64, Entry: storage.Entry{Target: "orders", Topic: "orders.delay", ID: "one", Expires: 1_900_000_000_000}},
			{Verb: Cancel, If: Present, Entry: storage.Entry{Topic: "other.delay", ID: "two"}},
			{Verb: Change, If: Absent, Entry: storage.Entry{Due: 5, Target: "bills", Topic: "orders.delay", ID: strings.Repeat("i", 256), Body: []byte("x")}},
		}},
		{TopicID: topicID, Topic: "orders.delay", Partition: 8, Next: 1, Entries: []storage.Entry{{Due: 1, Target: "orders", Body: []byte("plain")}}},
		{TopicID: topicID, Topic: "orders.delay", Partition: 9, Next: 1, Entries: []storage.Entry{}},
	}},
	"ingest-records": Ingest{Time: 1_700_000_000_000, Parts: []Part{
		{TopicID: topicID, Topic: "orders.delay", Partition: 7, From: 10, Next: 20, Epoch: 1, Entries: []storage.Entry{}, Operations: []Operation{
			{Verb: Schedule, Entry: storage.Entry{Due: 1_800_000_000_000, Target: "orders", Topic: "orders.delay", Body: []byte("payload")}},
			{Verb: Schedule, If: Exactly, Seq: math.MaxUint64, Record: math.MaxUint64, Entry: storage.Entry{Target: "orders", Topic: "orders.delay", ID: "one", Expires: 1_900_000_000_000}},
			{Verb: Cancel, If: Present, Record: 1, Entry: storage.Entry{Topic: "orders.delay", ID: "two"}},
		}},
	}},
	"operate": Operate{Time: 7, Operations: []Operation{
		{Verb: Cancel, If: Exactly, Seq: 3, Entry: storage.Entry{Topic: "orders.delay", ID: "one"}},
		{Verb: Schedule, Entry: storage.Entry{Due: 3, Target: "a", Body: []byte("no topic, no id")}},
	}},
	"operate-once": Operate{Time: 7, Operations: []Operation{
		{Verb: Cancel, Entry: storage.Entry{Topic: "orders.delay"}, Of: &storage.Found{Ref: storage.Ref{Due: -5, Seq: math.MaxUint64}, Target: "a", Topic: "orders.delay", Expires: -9}},
		{Verb: Change, If: Exactly, Seq: 4, Entry: storage.Entry{Due: 3, Target: "b", Topic: "orders.delay", Body: []byte("x")},
			Of: &storage.Found{Ref: storage.Ref{Due: 5, Seq: 4}, Target: "a"}, Once: &Once{Key: name.Of("", "key"), Content: math.MaxUint64}},
		{Verb: Schedule, Entry: storage.Entry{Due: 3, Target: "a", Topic: "orders.delay", ID: "one"}, Once: &Once{Key: name.Of("", "other")}},
		{Verb: Schedule, Entry: storage.Entry{Due: 3, Target: "a", Body: []byte("neither")}},
	}},
	"operate-replay": Operate{Time: 7, Operations: []Operation{
		{Verb: Schedule, Entry: storage.Entry{Due: 3, Target: "a", Topic: "orders.delay", ID: "one", Body: []byte("x")},
			Replay: &Replay{At: replayed.Partition{TopicID: topicID, Number: -1}, Offset: math.MaxInt64, First: 1 << 40}},
		{Verb: Schedule, If: Absent, Entry: storage.Entry{Due: 3, Target: "a", Topic: "orders.delay"}, Once: &Once{Key: name.Of("", "other")},
			Replay: &Replay{At: replayed.Partition{TopicID: topicID}, Again: true}},
	}},
	"ack-ended": Ack{Time: 1_700_000_000_000, Runs: []storage.SeqRun{{First: 5, Last: 9}}, Ended: []Ended{
		{Name: name.Of("orders.delay", "one"), Kind: outcomes.Delivered, Seq: 8, Due: 1_699_999_999_990, At: 1_700_000_000_000, Target: "orders", Partition: 3, Offset: 1 << 40},
		{Name: name.Of("orders.delay", "two"), Kind: outcomes.Delivered, Seq: 5, Due: math.MaxInt64, At: math.MinInt64, Target: "orders", Partition: -1, Offset: -1},
		{Name: name.Of("orders.delay", "three"), Kind: outcomes.Expired, Seq: math.MaxUint64, At: 1},
	}},
	"replace-ended": Replace{Time: 4, Kills: []uint64{7, 1}, Entries: []storage.Entry{
		{Due: 1, Target: "dead", Topic: "orders.delay", Body: []byte("x")}, {Due: 2, Target: "dead", Topic: "orders.delay", ID: "one", Expires: 9}},
		Ended: []Ended{{Name: name.Of("orders.delay", "one"), Kind: outcomes.DeadLettered, Seq: 7, Due: 1, At: 4, Target: "dead", Offset: -1}}},
	"open-ids": OpenIDs{Time: 5, UpTo: 99, Named: []storage.Named{
		{Ref: storage.Ref{Due: 1_800_000_000_000, Seq: 7}, Target: "orders", Topic: "orders.delay", ID: "one", Expires: -1},
		{Ref: storage.Ref{Due: -1, Seq: 3}, Target: "orders", Topic: "", ID: ""},
	}},
	"change-claim-topics": ChangeClaim{Time: 2, ClaimChange: storage.ClaimChange{Through: 99, Mark: storage.Ref{Due: 98, Seq: 1}, Set: []storage.Hold{}, Lift: []string{},
		Topics: []storage.TopicHold{{Topic: "a.delay", Through: -1, Mark: storage.Ref{Due: 40, Seq: 4}}}, LiftTopics: []string{"b.delay"}}},
	"pause":      Pause{Time: 8, Kind: pause.Topic, Name: "orders.delay", Who: "ann", Why: ""},
	"resume":     Resume{Time: 9, Kind: pause.Target, Name: "orders"},
	"start-bulk": StartBulk{Time: 10, What: `{"verb":"cancel"}`, Who: "ann", Once: Once{Key: name.Of("", "key"), Content: math.MaxUint64}},
	"step-bulk": StepBulk{Time: 11, ID: 3, From: "", Next: "there", Finished: true, Passed: bulk.Counts{TooLate: 1, NotFound: 1 << 40, Failed: 2}, Problem: "no such target", Operations: []Operation{
		{Verb: Cancel, If: Exactly, Seq: 9, Entry: storage.Entry{Topic: "orders.delay", ID: "one"}},
		{Verb: Cancel, Entry: storage.Entry{Topic: "orders.delay"}, Of: &storage.Found{Ref: storage.Ref{Due: 5, Seq: 4}, Target: "a", Topic: "orders.delay"}},
		{Verb: Cancel, Entry: storage.Entry{Topic: "orders.delay"}, Of: &storage.Found{Ref: storage.Ref{Due: 5, Seq: 7}, Target: "a", Topic: "orders.delay", Expires: 6}},
	}},
	"stop-bulk":     StopBulk{Time: 12, ID: 3, Problem: "stopped by ann"},
	"keep-outcomes": KeepOutcomes{Time: 6, Keep: outcomes.Keep{For: -1, Count: math.MaxUint64}},
	"replace":       Replace{Time: 4, Kills: []uint64{7, 1}, Entries: []storage.Entry{{Due: 1, Target: "dead", Body: []byte("x")}, {Due: 2, Target: "dead"}}},
}

func TestCommands_keepTheirForm(t *testing.T) {
	for name, cmd := range samples {
		path := filepath.Join("testdata", "v1-"+name+".golden")
		got := hex.Dump(cmd.append(nil))
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: what older logs hold can no longer be read (-golden +now):\n%s", name, diff)
		}
	}
}

func TestCommands_comeBackAsTheyWent(t *testing.T) {
	for name, cmd := range samples {
		b := cmd.append(nil)
		if cmd.Size() != len(b) {
			t.Errorf("%s: Size %d, encoded %d bytes", name, cmd.Size(), len(b))
		}
		got, err := decodeCommand(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(cmd, got); diff != "" {
			t.Errorf("%s (-sent +got):\n%s", name, diff)
		}
	}
}

func TestDecode_refusesEveryTruncation(t *testing.T) {
	for name, cmd := range samples {
		b := cmd.append(nil)
		for n := range len(b) {
			if _, err := decodeCommand(b[:n]); !errors.Is(err, ErrCommand) {
				t.Errorf("%s cut to %d of %d bytes: %v, want ErrCommand", name, n, len(b), err)
			}
		}
		if _, err := decodeCommand(append(b, 0)); !errors.Is(err, ErrCommand) {
			t.Errorf("%s with a byte more: %v, want ErrCommand", name, err)
		}
	}
}

func TestDecode_tellsUnknownFromMalformed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes []byte
		want  error
		say   string
	}{
		{"a newer version", []byte{3, kindAck, 0, 0}, ErrUnknownCommand, "version 3"},
		{"a newer kind", []byte{1, 200, 0}, ErrUnknownCommand, "kind 200"},
		{"nothing", nil, ErrCommand, "0 bytes"},
		{"a count beyond the end", []byte{1, kindAck, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, ErrCommand, "count exceeds"},
		{"kills without entries", []byte{1, kindReplace, 0, 1, 9, 0}, ErrCommand, "differ in number"},
		{"no verb", []byte{1, kindOperate, 0, 1, 0}, ErrCommand, "no such operation"},
		{"more than an operation has", []byte{1, kindOperate, 0, 1, 128 | byte(Cancel)}, ErrCommand, "no such operation"},
		{"a cancel that expires", []byte{1, kindOperate, 0, 1, hasExpiry | byte(Cancel)}, ErrCommand, "no such operation"},
		{"a topic without a name", []byte{1, kindOperate, 0, 1, hasTopic | byte(Cancel), 0}, ErrCommand, "without a name"},
		{"more operations than bytes", []byte{1, kindOperate, 0, 0xff, 0xff, 0xff, 0x0f}, ErrCommand, "count exceeds"},
		{"more that ended than bytes", []byte{2, kindAck, 0, 0, 9}, ErrCommand, "count exceeds"},
		{"a schedule of a message that is there", []byte{2, kindOperate, 0, 1, byte(Schedule), 0, 0, 0, hasOf, 0, 1, 0, 0, 0}, ErrCommand, "that it cannot be on"},
		{"a message without a seq", []byte{2, kindOperate, 0, 1, byte(Cancel), hasOf, 0, 0, 0, 0, 0}, ErrCommand, "that it cannot be on"},
		{"a change by an id and of a message", []byte{2, kindOperate, 0, 1, byte(Change) | hasID, 1, 'i', 0, 0, 0, hasOf, 0, 1, 0, 0, 0}, ErrCommand, "that it cannot be on"},
		{"a cancel of a dead letter", append(append([]byte{2, kindOperate, 0, 1, byte(Cancel), replays}, topicID[:]...), 0, 0, 0), ErrCommand, "replay of no dead letter"},
		{"a dead letter of no topic", append(append([]byte{2, kindOperate, 0, 1, byte(Schedule), 0, 0, 0, replays}, make([]byte, 16)...), 0, 0, 0), ErrCommand, "replay of no dead letter"},
		{"a dead letter below 0", append(append([]byte{2, kindOperate, 0, 1, byte(Schedule), 0, 0, 0, replays}, topicID[:]...), 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0), ErrCommand, "replay of no dead letter"},
		{"again without a replay", []byte{2, kindOperate, 0, 1, byte(Cancel), again}, ErrCommand, "no such operation"},
		{"more than more", []byte{2, kindOperate, 0, 1, byte(Cancel), 16}, ErrCommand, "no such operation"},
		{"a long word of who asks", append([]byte{1, kindStartBulk, 0, 0, 0x81, 2}, make([]byte, 257+17)...), ErrCommand, "who asks has 257 bytes"},
		{"a long cursor", append([]byte{1, kindStepBulk, 0, 1, 0, 0x81, 4}, make([]byte, 513+6)...), ErrCommand, "cursor has 513 bytes"},
		{"a long reason to stop", append([]byte{1, kindStopBulk, 0, 1, 0x81, 4}, make([]byte, 513)...), ErrCommand, "problem has 513 bytes"},
		{"no kind of pause", []byte{1, kindPause, 0, 3, 1, 'a', 0, 0}, ErrCommand, "no such kind"},
		{"no kind of end", append([]byte{2, kindAck, 0, 0, 1}, make([]byte, 23)...), ErrCommand, "no such end"},
		{"a run that wraps", []byte{1, kindAck, 0, 1, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, ErrCommand, "before it begins"},
	} {
		_, err := decodeCommand(tt.bytes)
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.say) {
			t.Errorf("%s: %v, want %v that says %q", tt.name, err, tt.want, tt.say)
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, cmd := range samples {
		f.Add(cmd.append(nil))
	}
	f.Add([]byte{1, kindIngest, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		cmd, err := decodeCommand(b)
		if err != nil {
			return
		}
		again := cmd.append(nil)
		if cmd.Size() != len(again) {
			t.Fatalf("Size %d, encoded %d bytes", cmd.Size(), len(again))
		}
		second, err := decodeCommand(again)
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		if diff := cmp.Diff(cmd, second); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
		if !bytes.Equal(again, second.append(nil)) {
			t.Fatal("encoding twice differs")
		}
	})
}

// What a builder adds up is what the command takes, but for the count, whose bytes grow with it.
func TestOperationSize_isWhatAnOperationAdds(t *testing.T) {
	for _, sample := range []string{"ingest-operations", "operate"} {
		var topic string
		var os []Operation
		switch c := samples[sample].(type) {
		case Ingest:
			topic, os = c.Parts[0].Topic, c.Parts[0].Operations
		case Operate:
			os = c.Operations
		}
		for i := range os {
			with := Ingest{Parts: []Part{{Topic: topic, Operations: os[:i+1]}}}.Size()
			if without := (Ingest{Parts: []Part{{Topic: topic, Operations: os[:i]}}}).Size(); i > 0 && with-without != OperationSize(&os[i], topic) {
				t.Errorf("%s: operation %d adds %d bytes, its size is %d", sample, i, with-without, OperationSize(&os[i], topic))
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, form := range []string{"entries", "operations", "operations with ids"} {
		b.Run(form, func(b *testing.B) {
			encoded := benchIngest(form, 0, 400).append(nil)
			b.SetBytes(int64(len(encoded)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeCommand(encoded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchIngest is an ingest of count messages from offset from on, in one of the forms.
func benchIngest(form string, from int64, count int) Ingest {
	part := Part{TopicID: topicID, Topic: "a.delay", From: from, Next: from + int64(count), Epoch: -1}
	for at := from; at < part.Next; at++ {
		entry := storage.Entry{Due: 1_000_000 + at*7919%86_400_000, Target: "a", Body: make([]byte, 1000)}
		switch form {
		case "entries":
			part.Entries = append(part.Entries, entry)
			continue
		case "operations with ids":
			entry.ID = fmt.Sprintf("order-%d", at)
		}
		entry.Topic = part.Topic
		part.Operations = append(part.Operations, Operation{Verb: Schedule, Entry: entry})
	}
	return Ingest{Time: 400, Parts: []Part{part}}
}
