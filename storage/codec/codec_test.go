package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

func TestDecoder_readsWhatWasAppendedAndSizesTellItsLength(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 63, 64, -64, -65, 1 << 40, math.MaxInt32, math.MinInt64, math.MaxInt64} {
		b := binary.AppendUvarint(binary.AppendVarint(nil, v), uint64(v))
		d := NewDecoder(b)
		if got, u := d.Varint(), d.Uvarint(); got != v || u != uint64(v) || d.Finish("numbers") != nil {
			t.Errorf("%d was read as %d and %d, %s", v, got, u, d.Problem())
		}
		if size := VarintSize(v) + UvarintSize(uint64(v)); size != len(b) {
			t.Errorf("%d takes %d bytes, not %d", v, len(b), size)
		}
	}
	for _, p := range [][]byte{nil, {}, {7}, make([]byte, 126), make([]byte, 127), make([]byte, 20_000)} {
		b := AppendBytes(nil, p)
		view, copied := NewDecoder(b), NewDecoder(b)
		for _, got := range [][]byte{view.BytesView(), copied.Bytes()} {
			if !bytes.Equal(got, p) || (got == nil) != (p == nil) {
				t.Errorf("%d bytes, null %t, were read as %d, null %t", len(p), p == nil, len(got), got == nil)
			}
		}
		if size := BytesSize(p); size != len(b) || view.Left() != 0 || copied.Left() != 0 {
			t.Errorf("%d bytes take %d, not %d; %d and %d are left", len(p), len(b), size, view.Left(), copied.Left())
		}
	}
}

func TestDecoder_keepsTheFirstProblemAndReadsNothingMore(t *testing.T) {
	for name, tt := range map[string]struct {
		b    []byte
		read func(d *Decoder)
		want string
	}{
		"number":   {[]byte{0x80, 0x80}, func(d *Decoder) { d.Varint() }, "number cut short or too long"},
		"too long": {bytes.Repeat([]byte{0xff}, 11), func(d *Decoder) { d.Uvarint() }, "number cut short or too long"},
		"int32":    {binary.AppendVarint(nil, math.MaxInt32+1), func(d *Decoder) { d.Int32() }, "number exceeds 32 bits"},
		"bytes":    {[]byte{9, 1, 2}, func(d *Decoder) { d.BytesView() }, "length exceeds what is there"},
		"bool":     {[]byte{2}, func(d *Decoder) { d.Bool() }, "flag is neither 0 nor 1"},
		"count":    {[]byte{2, 0, 0, 0}, func(d *Decoder) { d.CountOf(2) }, "count exceeds what is there"},
	} {
		d := NewDecoder(tt.b)
		tt.read(&d)
		if d.Uvarint() != 0 || d.Varint() != 0 || d.View(0) != nil || d.Count() != 0 || d.Bool() || d.BytesView() != nil {
			t.Errorf("%s: something was read after it", name)
		}
		if err := d.Finish(name); d.Problem() != tt.want || !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %q and %v, want %q", name, d.Problem(), err, tt.want)
		}
	}
}
