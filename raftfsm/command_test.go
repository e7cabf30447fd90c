package raftfsm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/storage"
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
	"replace":     Replace{Time: 4, Kills: []uint64{7, 1}, Entries: []storage.Entry{{Due: 1, Target: "dead", Body: []byte("x")}, {Due: 2, Target: "dead"}}},
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
		{"a newer version", []byte{2, kindAck, 0, 0}, ErrUnknownCommand, "version 2"},
		{"a newer kind", []byte{1, 200, 0}, ErrUnknownCommand, "kind 200"},
		{"nothing", nil, ErrCommand, "0 bytes"},
		{"a count beyond the end", []byte{1, kindAck, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, ErrCommand, "count exceeds"},
		{"kills without entries", []byte{1, kindReplace, 0, 1, 9, 0}, ErrCommand, "differ in number"},
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

func BenchmarkDecode(b *testing.B) {
	part := Part{TopicID: topicID, Topic: "a.delay", Next: 400, Epoch: -1}
	for i := range 400 {
		part.Entries = append(part.Entries, storage.Entry{Due: 1_000_000 + int64(i)*7919%86_400_000, Target: "a", Body: make([]byte, 1000)})
	}
	encoded := Ingest{Time: 400, Parts: []Part{part}}.append(nil)
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeCommand(encoded); err != nil {
			b.Fatal(err)
		}
	}
}
