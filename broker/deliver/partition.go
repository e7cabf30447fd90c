package deliver

import (
	"fmt"
	"hash/crc32"
	"hash/fnv"

	"github.com/carillonmq/carillon/broker/message"
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
	case m.Partitioner == message.SamePartition && !m.Origin.NoRecord(): // else as the Java client does
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
