package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/carillonmq/carillon/storage/codec"
	"go.etcd.io/bbolt"
)

// pages reads a bbolt file beside bbolt, for the one thing that bbolt cannot
// survive: a damaged branch page can lead a cursor in a circle until the stack
// is full, which no recover catches. Their checksum is compared before bbolt
// descends through them. Layout of a branch page (bbolt format 2, native order):
//
//	| id u64 | flags u16 | count u16 | overflow u32 | count x (pos u32, ksize u32, page u64) | keys |
type pages struct {
	file *os.File
	size uint64
}

const (
	pageHeader    = 16
	branchElement = 16
	branchFlag    = 1
	maxDepth      = 16 // a tree of this height holds more than any disk
)

func openPages(db *bbolt.DB) (*pages, error) {
	file, err := os.Open(db.Path())
	if err != nil {
		return nil, fmt.Errorf("read pages: %w", err)
	}
	return &pages{file: file, size: uint64(db.Info().PageSize)}, nil
}

func (p *pages) close() { _ = p.file.Close() } // only read

// branches lists the branch pages from root down. The file must be sound: it is
// called on what was just written.
func (p *pages) branches(root uint64) ([]uint64, error) {
	var found []uint64
	var walk func(id uint64, depth int) error
	walk = func(id uint64, depth int) error {
		head := make([]byte, pageHeader)
		if _, err := p.file.ReadAt(head, int64(id*p.size)); err != nil {
			return fmt.Errorf("read page %d: %w", id, err)
		}
		if binary.NativeEndian.Uint16(head[8:]) != branchFlag {
			return nil
		}
		if depth == maxDepth {
			return fmt.Errorf("%w: branch pages %d deep", codec.ErrCorrupt, depth)
		}
		found = append(found, id)
		page, err := p.read(id)
		if err != nil {
			return err
		}
		for i := range int(binary.NativeEndian.Uint16(head[10:])) {
			if err := walk(binary.NativeEndian.Uint64(page[pageHeader+i*branchElement+8:]), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return found, walk(root, 0)
}

// checksum returns the CRC-32C over the pages' content.
func (p *pages) checksum(ids []uint64) (uint32, error) {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	for _, id := range ids {
		page, err := p.read(id)
		if err != nil {
			return 0, err
		}
		sum.Write(page)
	}
	return sum.Sum32(), nil
}

// read returns a page with its overflow.
func (p *pages) read(id uint64) ([]byte, error) {
	page := make([]byte, p.size)
	if _, err := p.file.ReadAt(page, int64(id*p.size)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	overflow := binary.NativeEndian.Uint32(page[12:])
	if overflow == 0 {
		return page, nil
	}
	if overflow > 1<<10 { // a branch page holds less than two pages of keys of 16 bytes
		return nil, fmt.Errorf("%w: branch page %d with %d pages of overflow", codec.ErrCorrupt, id, overflow)
	}
	page = make([]byte, p.size*uint64(overflow+1))
	if _, err := p.file.ReadAt(page, int64(id*p.size)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	return page, nil
}
