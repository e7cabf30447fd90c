package name

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/internal/golden"
)

// inOrder returns rows of n ids, some of them twice, in the order of their keys.
func inOrder(n int, spread int64) []Row {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	var rows []Row
	for i := range n {
		r := Row{Hash: Of("orders.delay", fmt.Sprint("order-", i-i%10)), Seq: uint64(i + 1), Due: 1_700_000_000_000 + random.Int64N(spread), Target: fmt.Sprint("target-", i%3)}
		if i%7 == 0 {
			r.Expires = r.Due + random.Int64N(1000) - 500
		}
		r.Foreign = i%11 == 0
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b Row) int { return a.Key().Compare(b.Key()) })
	return rows
}

// chunksOf writes rows as a segment does.
func chunksOf(rows []Row) (keys, values [][]byte) {
	var b ChunkBuilder
	put := func(until Key) {
		key, value := b.Finish(uint32(len(keys)), until, nil)
		keys, values = append(keys, key), append(values, value)
	}
	for i := range rows {
		if !b.Add(&rows[i]) {
			put(rows[i].Key())
			b.Add(&rows[i])
		}
	}
	put(End)
	return keys, values
}

func rowsOf(key, value []byte) (Chunk, []Row, error) {
	c, err := OpenChunk(key, value)
	if err != nil {
		return c, nil, err
	}
	var rows []Row
	for i := range c.Len() {
		r, err := c.Row(i)
		if err != nil {
			return c, nil, err
		}
		rows = append(rows, r)
	}
	return c, rows, nil
}

func TestChunk_keepsRows(t *testing.T) {
	for _, spread := range []int64{1, 1000, 86_400_000, 1 << 62} {
		want := inOrder(3000, spread)
		keys, values := chunksOf(want)
		var got []Row
		for i := range keys {
			c, rows, err := rowsOf(keys[i], values[i])
			if err != nil {
				t.Fatal(err)
			}
			if len(values[i]) > chunkSize || i < len(keys)-1 && len(values[i]) < chunkSize-64 {
				t.Errorf("chunk %d of %d has %d bytes of %d", i, len(keys), len(values[i]), chunkSize)
			}
			for at, r := range rows {
				if found := c.Search(r.Key()); found != at {
					t.Fatalf("row %d is found at %d", at, found)
				}
				if first := c.Search(r.Hash.From(math.MaxUint64)); first > at || first > 0 && rows[first-1].Hash == r.Hash || rows[first].Hash != r.Hash {
					t.Fatalf("the rows of row %d are found at %d", at, first)
				}
			}
			got = append(got, rows...)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("spread %d: rows do not survive", spread)
		}
	}
}

// Whatever numbers a row has, it is read as it was written.
func TestChunk_keepsExtremes(t *testing.T) {
	extreme := []int64{-1 << 63, -1, 0, 1, 1<<63 - 1}
	var rows []Row
	for i, due := range extreme {
		for j, expires := range extreme {
			rows = append(rows, Row{Hash: Hash{byte(i), 15: byte(j)}, Seq: 1 + uint64(due)>>2, Due: due, Expires: expires, Target: fmt.Sprint(j)})
		}
	}
	keys, values := chunksOf(rows)
	c, got, err := rowsOf(keys[0], values[0])
	if err != nil || !reflect.DeepEqual(got, rows) {
		t.Fatalf("got %+v, error %v", got, err)
	}
	if at := c.Search(Hash{0xff}.From(math.MaxUint64)); at != c.Len() {
		t.Errorf("what lies behind is found at %d", at)
	}
}

func TestChunk_noticesAnyFlippedBit(t *testing.T) {
	keys, values := chunksOf(inOrder(100, 1000))
	for i := range values[0] {
		for bit := range 8 {
			values[0][i] ^= 1 << bit
			if _, err := OpenChunk(keys[0], values[0]); !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
			values[0][i] ^= 1 << bit
		}
	}
}

func TestGolden_rows(t *testing.T) {
	rows := []Row{
		{Hash: Of("orders.delay", "x"), Seq: 300, Due: 1_700_000_000_000, Target: "orders"},
		{Hash: Of("orders.delay", "x"), Seq: 299, Due: 1_700_000_000_000, Target: "orders", Expires: 1_700_000_600_000},
		{Hash: Of("orders.delay", "y"), Seq: 7, Due: -5, Target: "payments", Expires: 1_700_000_000_001, Foreign: true},
	}
	slices.SortFunc(rows, func(a, b Row) int { return a.Key().Compare(b.Key()) })
	keys, values := chunksOf(rows)
	_, got, err := rowsOf(golden.Compare(t, "rows_key", keys[0]), golden.Compare(t, "rows", values[0]))
	if err != nil || !reflect.DeepEqual(got, rows) {
		t.Errorf("got %+v, error %v", got, err)
	}
}

// The decoder must take any bytes: what it accepts stays the same when it is written again.
func FuzzChunk(f *testing.F) {
	keys, values := chunksOf(inOrder(20, 1000))
	f.Add(keys[0], values[0], true)
	f.Fuzz(func(t *testing.T, key, value []byte, fixChecksum bool) {
		if fixChecksum && len(value) > 4 { // or no mutation gets past it
			binary.BigEndian.PutUint32(value, codec.Checksum(value[4:]))
		}
		c, rows, err := rowsOf(key, value)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		for _, h := range []Hash{{}, {0xff}, rows[0].Hash, rows[len(rows)-1].Hash} {
			if at := c.Search(h.From(math.MaxUint64)); at < 0 || at > c.Len() {
				t.Fatalf("%x is found at %d", h, at)
			}
		}
		var again ChunkBuilder
		for i := range rows {
			if !again.Add(&rows[i]) {
				return // more than a chunk takes
			}
		}
		k, v := again.Finish(c.Ordinal, End, nil)
		if _, reread, err := rowsOf(k, v); err != nil || !reflect.DeepEqual(reread, rows) {
			t.Fatalf("%+v is read as %+v, error %v", rows, reread, err)
		}
	})
}
