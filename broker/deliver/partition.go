package deliver

import (
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"slices"
	"time"

	"github.com/carillonmq/carillon/broker/message"
)

const (
	// countMaxAge bounds how long partitions that are added to a target go unused.
	countMaxAge = 5 * time.Second
	// lookAgain is the time between two looks for a partition that is not there.
	lookAgain = time.Second
	// lookedFor is how long a partition must not have been there, by two answers at
	// least, before a message that names it is condemned. A Kafka broker that was frozen
	// answers from the past, and a new partition takes a moment to be known everywhere.
	lookedFor = 3 * time.Second
)

// keylessRun is how many seqs, one after the other, stand for the same partition if
// they are of messages without a key: what was accepted together and is due together
// then travels in few batches, as with the sticky partitioners of Kafka's clients.
// Every message takes a seq, with a key or for another target too.
const keylessRun = 64

// choosePartition returns the partition of a target with count partitions to which
// the message goes, or the problem that there is no such partition. It depends on
// the message, its seq and count only, so a message that is sent again goes to the
// same place: invariant 8.
func choosePartition(m *message.Message, seq uint64, count int32) (int32, *message.Problem) {
	switch {
	case m.Partition >= count:
		return 0, &message.Problem{Code: message.CodeTargetInvalid, Message: fmt.Sprintf("deliver-partition %d: the target has partitions 0 to %d: choose one of them or add partitions", m.Partition, count-1)}
	case m.Partition >= 0:
		return m.Partition, nil
	case m.Partitioner == message.SamePartition && m.Origin.Partition >= count:
		return 0, &message.Problem{Code: message.CodeTargetInvalid, Message: fmt.Sprintf("partitioner source: the record came from partition %d, the target has partitions 0 to %d: add partitions or choose another partitioner", m.Origin.Partition, count-1)}
	case m.Partitioner == message.SamePartition:
		return m.Origin.Partition, nil
	}
	key := m.DeliveredKey()
	if key == nil {
		return int32(seq / keylessRun % uint64(count)), nil
	}
	return keyPartition(m.Partitioner, key, count), nil
}

// keyPartition puts a key where the producers that the partitioner is named for
// put it.
func keyPartition(p message.Partitioner, key []byte, count int32) int32 {
	switch p {
	case message.CRC32:
		return int32(crc32.ChecksumIEEE(key) % uint32(count))
	case message.FNV1a:
		hash := fnv.New32a()
		hash.Write(key)
		partition := int32(hash.Sum32()) % count
		return max(partition, -partition)
	default:
		return int32(murmur2(key)&0x7fffffff) % count
	}
}

// murmur2 is the hash of Kafka's Java client: 32 bits, its own fixed seed, the
// key read as little-endian words.
func murmur2(key []byte) uint32 {
	const (
		seed  = 0x9747b28c
		m     = 0x5bd1e995
		shift = 24
	)
	h := uint32(seed) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k ^= k >> shift
		k *= m
		h = h*m ^ k
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

// A layout is what a lane knows of the partitions of its target.
type layout struct {
	heard   PartitionCount // as Kafka last said; Count is 0 if that is not known, or something has failed since
	placed  int32          // the count that flying records were placed by
	asking  bool           // the prober will answer
	askedAt time.Time      // when it was last asked
	askNext time.Time      // when it is asked next, without waiting for that
}

// partitions returns how many partitions the target has, as Kafka last said. It never
// waits: an old count is good while a new one is asked for. Without a count, because
// something of the target has failed, both results are zero, and the answer will wake the
// lane. If the answer was that the target is not there, or there was none, it is an error,
// once.
func (l *lane) partitions() (int32, error) {
	if err := l.health.absent.recent(time.Now()); err != nil {
		return 0, err
	}
	if err := l.layout.heard.Err; err != nil {
		l.layout.heard = PartitionCount{}
		return 0, err
	}
	if l.layout.heard.Count == 0 || time.Now().After(l.layout.askNext) {
		l.ask()
	}
	return l.layout.heard.Count, nil
}

func (l *lane) ask() {
	if !l.layout.asking {
		l.layout.asking, l.layout.askedAt = true, time.Now()
		l.p.prober.ask(l.target)
	}
}

// takeAnswers hears how many partitions there are. An answer that says nothing of the
// kind counts only when there is none yet: what is sent will fail if it is true.
func (l *lane) takeAnswers() {
	for _, heard := range l.answers.Take(nil) {
		l.layout.asking = false
		l.health.absent.hear(heard.Err, time.Now())
		if heard.Err != nil && l.layout.heard.Count > 0 {
			l.layout.askNext = time.Now().Add(lookAgain)
			continue
		}
		l.layout.heard, l.layout.askNext = heard, time.Now().Add(countMaxAge)
		if heard.Err == nil {
			l.place()
		}
	}
}

// setUnplaced keeps a message whose partition is not there out of the way of the others.
// None of these is for the same partition.
func (l *lane) setUnplaced(o *outgoing) {
	o.unplaced, o.missed = time.Now(), time.Time{}
	l.unplaced = append(l.unplaced, o)
}

// look asks for the partitions that are not there, when it is time.
func (l *lane) look() {
	if len(l.unplaced) > 0 && time.Since(l.layout.askedAt) >= lookAgain {
		l.ask()
	}
}

// place makes unplaced messages ready again, in their order: all of them if the target has
// another number of partitions now, else those whose partition was looked for long enough,
// which are condemned. An answer counts for a message only if the question was put after the
// message was found to be unplaced.
func (l *lane) place() {
	changed := l.layout.heard.Count != l.layout.placed
	var back, rest []*outgoing
	for _, o := range l.unplaced {
		switch {
		case changed:
			back = append(back, o)
			continue
		case l.layout.askedAt.Before(o.unplaced):
		case o.missed.IsZero():
			o.missed = time.Now()
		case time.Since(o.missed) >= lookedFor:
			o.nowhere = true
			back = append(back, o)
			continue
		}
		rest = append(rest, o)
	}
	l.unplaced = rest
	if len(back) > 0 {
		l.ready = append(back, l.ready...)
		slices.SortFunc(l.ready, func(a, b *outgoing) int { return a.ref.Compare(b.ref) })
	}
}
