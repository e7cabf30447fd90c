package segment

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
)

// The chunk decoder must take any bytes: what it accepts is in order and, read
// and written again, stays the same.
func FuzzChunk(f *testing.F) { fuzzChunk(f, Plain) }

func FuzzChunkWithIDs(f *testing.F) {
	var b = chunkBuilder{form: WithIDs}
	for _, e := range goldenNamed() {
		b.add(&e)
	}
	key, value := b.finish(0, nil)
	f.Add(key, value, true)
	fuzzChunk(f, WithIDs)
}

func fuzzChunk(f *testing.F, form Form) {
	f.Fuzz(func(t *testing.T, key, value []byte, fixChecksum bool) {
		if fixChecksum { // or no mutation gets past it
			fixChunk(value)
		}
		entries, err := decodeChunk(form, key, value)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		again := chunkBuilder{form: form}
		for i := range entries {
			if i > 0 && !entries[i-1].Ref().Less(entries[i].Ref()) {
				t.Fatalf("entry %v after %v", entries[i].Ref(), entries[i-1].Ref())
			}
			again.add(&entries[i].Entry)
		}
		key, value = again.finish(0, nil)
		reread, err := decodeChunk(form, key, value)
		if err != nil || len(reread) != len(entries) {
			t.Fatalf("read %d, %d after writing again (%v)", len(entries), len(reread), err)
		}
		for i := range entries {
			if !reflect.DeepEqual(entries[i].Entry, reread[i].Entry) {
				t.Fatalf("entry %d: %+v, %+v after writing again", i, entries[i], reread[i])
			}
		}
	})
}

func fixChunk(value []byte) {
	if len(value) < chunkHeader {
		return
	}
	if end := chunkHeader + uint64(binary.BigEndian.Uint32(value[4:])); end <= uint64(len(value)) {
		binary.BigEndian.PutUint32(value, codec.Checksum(value[4:end]))
	}
}

func decodeChunk(form Form, key, value []byte) (entries []chunkEntry, err error) {
	c, err := openChunk(form, key, value)
	if err != nil {
		return nil, err
	}
	for {
		var e chunkEntry
		ok, err := c.next(&e)
		if err != nil || !ok {
			return entries, err
		}
		entries = append(entries, e)
	}
}

// Records of any content must decode to what encodes to the same bytes, or fail.
func FuzzRecord(f *testing.F) {
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, form := range []Form{Plain, WithIDs} {
			d := codec.NewDecoder(payload)
			if r := ReadRecord(&d, form); d.Finish("segment record") == nil {
				d := codec.NewDecoder(r.Append(nil))
				if again := ReadRecord(&d, form); d.Finish("again") != nil || !reflect.DeepEqual(again, r) {
					t.Fatalf("record %+v does not survive", r)
				}
			}
		}
	})
}
