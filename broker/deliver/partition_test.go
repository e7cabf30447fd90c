package deliver

import (
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/message"
)

// The vectors are those of Kafka's own test of Utils.murmur2.
func TestMurmur2_isThatOfTheJavaClient(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestKeyPartition_agreesWithTheClientsThatItIsNamedFor(t *testing.T) {
	fnv32a := func(key []byte) uint32 {
		hash := fnv.New32a()
		hash.Write(key)
		return hash.Sum32()
	}
	for name, test := range map[string]struct {
		ours   message.Partitioner
		theirs kgo.Partitioner
	}{
		"murmur2": {message.Murmur2, kgo.StickyKeyPartitioner(nil)},
		"crc32":   {message.CRC32, kgo.StickyKeyPartitioner(func(key []byte, n int) int { return int(crc32.ChecksumIEEE(key) % uint32(n)) })},
		"fnv1a":   {message.FNV1a, kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(fnv32a))},
	} {
		topic := test.theirs.ForTopic("t")
		random := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			key := make([]byte, 1+random.IntN(40))
			for i := range key {
				key[i] = byte(random.UintN(256))
			}
			count := 1 + random.Int32N(50)
			want := int32(topic.Partition(&kgo.Record{Key: key}, int(count)))
			if got := keyPartition(test.ours, key, count); got != want {
				t.Fatalf("%s of %x among %d: partition %d, want %d", name, key, count, got, want)
			}
		}
	}
}

func TestChoosePartition(t *testing.T) {
	const count = 6
	byKey := func(key string) message.Message { return message.Message{Partition: -1, Key: []byte(key)} }
	foobar := keyPartition(message.Murmur2, []byte("foobar"), count)
	for _, test := range []struct {
		name    string
		message message.Message
		seq     uint64
		want    int32
		invalid bool
	}{
		{"a key decides", byKey("foobar"), 1, foobar, false},
		{"whatever the seq", byKey("foobar"), 2, foobar, false},
		{"an explicit partition wins over the key", message.Message{Partition: 5, Key: []byte("foobar")}, 1, 5, false},
		{"the first one as well", message.Message{}, 9 * keylessRun, 0, false},
		{"an explicit partition that is not there", message.Message{Partition: 6}, 1, 0, true},
		{"without a key the seq decides", message.Message{Partition: -1}, 9 * keylessRun, 3, false},
		{"the same for all of a run", message.Message{Partition: -1}, 10*keylessRun - 1, 3, false},
		{"and another for the next one", message.Message{Partition: -1}, 10 * keylessRun, 4, false},
		{"an empty key is a key", message.Message{Partition: -1, Key: []byte{}, Partitioner: message.CRC32}, 15, 0, false},
		{"the partition that it came from", message.Message{Partition: -1, Key: []byte("k"), Partitioner: message.SamePartition, Origin: message.Origin{Partition: 4}}, 1, 4, false},
		{"a partition that it came from and that is not there", message.Message{Partition: -1, Partitioner: message.SamePartition, Origin: message.Origin{Partition: 6}}, 1, 0, true},
		{"without a record it came from none", message.Message{Partition: -1, Key: []byte("foobar"), Partitioner: message.SamePartition, Origin: message.Origin{Partition: -1}}, 1, foobar, false},
		{"neither record nor key", message.Message{Partition: -1, Partitioner: message.SamePartition, Origin: message.Origin{Partition: -1}}, 9 * keylessRun, 3, false},
	} {
		got, problem := choosePartition(&test.message, test.seq, count)
		if invalid := problem != nil; invalid != test.invalid || got != test.want {
			t.Errorf("%s: partition %d, problem %v, want %d, %t", test.name, got, problem, test.want, test.invalid)
		}
		if problem != nil && problem.Code != message.CodeTargetInvalid {
			t.Errorf("%s: code %q, want %q", test.name, problem.Code, message.CodeTargetInvalid)
		}
	}
}
