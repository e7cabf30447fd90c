package alive

import (
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/carillonmq/carillon/storage/codec"
)

// EncodePortable writes the set in roaring's portable 64-bit format, as LevelOne has
// it.
func EncodePortable(alive *Set) (codec.Record, error) {
	portable := roaring64.New()
	seqs := make([]uint64, 0, blockSeqs)
	for number, b := range alive.all() {
		first := number << blockBits
		if b.count == blockSeqs {
			portable.AddRange(first, first+blockSeqs)
			continue
		}
		seqs = seqs[:0]
		for low := range b.all() {
			seqs = append(seqs, first|uint64(low))
		}
		portable.AddMany(seqs)
	}
	portable.RunOptimize()
	b, err := portable.ToBytes()
	if err != nil {
		return codec.Record{}, fmt.Errorf("encode alive-set: %w", err)
	}
	return codec.Record{Version: 1, Payload: b}, nil
}

func DecodePortable(r codec.Record) (*Set, error) {
	portable := roaring64.New()
	if err := portable.UnmarshalBinary(r.Payload); err != nil {
		return nil, fmt.Errorf("%w: alive-set: %w", codec.ErrCorrupt, err)
	}
	if !portable.IsEmpty() && portable.Maximum() > maxSeq {
		return nil, fmt.Errorf("%w: alive-set: seq %d", codec.ErrCorrupt, portable.Maximum())
	}
	alive, low := NewSet(), make([]uint16, 0, blockSeqs)
	number, buf := uint64(0), make([]uint64, 4096)
	for seqs := portable.ManyIterator(); ; {
		n := seqs.NextMany(buf)
		for _, seq := range buf[:n] {
			if seq>>blockBits != number {
				alive.putLow(number, low)
				number, low = seq>>blockBits, low[:0]
			}
			low = append(low, uint16(seq))
		}
		if n == 0 {
			alive.putLow(number, low)
			return alive, nil
		}
	}
}

// putLow makes a block of what is sorted in low, if that is anything.
func (s *Set) putLow(number uint64, low []uint16) {
	if len(low) == 0 {
		return
	}
	b := &block{count: uint32(len(low)), low: low}
	if len(low) <= maxLow {
		b.low = slices.Clone(low)
	} else if len(low) == blockSeqs {
		b.low = nil
	} else {
		b.bits, b.low = b.asBits(), nil
	}
	s.put(number, b)
}
