package message

import (
	"errors"
	"fmt"
	"slices"
)

// A Partitioner says how the target partition of a keyed message is chosen.
type Partitioner uint8

// The partitioners; their numbers stand in stored messages.
const (
	Murmur2       Partitioner = iota // Java, franz-go, kafkajs
	CRC32                            // librdkafka's default: Python, .NET, Node
	FNV1a                            // sarama
	SamePartition                    // the number of the partition that the record came from
)

// partitionerNames are the names in the configuration, by number.
var partitionerNames = [...]string{Murmur2: "murmur2", CRC32: "crc32", FNV1a: "fnv1a", SamePartition: "source"}

// String returns the partitioner's name in the configuration.
func (p Partitioner) String() string {
	if int(p) >= len(partitionerNames) {
		return fmt.Sprintf("partitioner(%d)", uint8(p))
	}
	return partitionerNames[p]
}

// UnmarshalText reads the partitioner's name in the configuration.
func (p *Partitioner) UnmarshalText(text []byte) error {
	i := slices.Index(partitionerNames[:], string(text))
	if i < 0 {
		return errors.New("there is no such partitioner; use murmur2, crc32, fnv1a or source")
	}
	*p = Partitioner(i)
	return nil
}
