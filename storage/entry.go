package storage

import "github.com/carillonmq/carillon/storage/segment"

type (
	// Ref names one message and its place in the order of delivery.
	Ref = segment.Ref

	// Entry is one message of the schedule.
	Entry = segment.Entry
)

// Item is what a scan tells of an entry: all but its body.
type Item struct {
	Ref
	Target string
	Size   int // bytes of the body
}

// SeqRun is the seqs First to Last, both included.
type SeqRun struct{ First, Last uint64 }
