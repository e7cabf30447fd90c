package storage

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

func receive(to *Store, meta SnapshotMeta, from io.Reader) error {
	r, err := to.Receive(meta)
	if err != nil {
		return err
	}
	if _, err := io.Copy(r, from); err != nil {
		r.Abort()
		return err
	}
	if err := r.Commit(); err != nil {
		return err
	}
	return to.Reload()
}

func TestReceive_refusesADamagedOrShortStream(t *testing.T) {
	from, sent := openStore(t, t.TempDir()), newModel()
	for index := uint64(1); index <= 2; index++ {
		script(from, sent, operation{Accept: entries(100, 0, 1, 1000)})
		flush(t, from, index)
	}
	meta, size, rc, err := from.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	stream, err := io.ReadAll(rc)
	if err != nil || int64(len(stream)) != size {
		t.Fatalf("stream of %d bytes, announced %d, error %v", len(stream), size, err)
	}
	to, m := openStore(t, t.TempDir()), newModel()
	script(to, m, operation{Accept: entries(3, 0, 1, 10)})
	flush(t, to, 1)

	random := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		damage := bytes.Clone(stream)
		damage[random.IntN(len(damage))] ^= 1 << random.IntN(8)
		if err := receive(to, meta, bytes.NewReader(damage)); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrDiskFull) {
			t.Fatalf("damaged stream: %v", err)
		}
	}
	for _, n := range []int{0, 5, 100, len(stream) / 2, len(stream) - 1} {
		if err := receive(to, meta, bytes.NewReader(stream[:n])); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("stream cut to %d bytes: %v", n, err)
		}
	}
	if err := receive(to, meta, bytes.NewReader(append(bytes.Clone(stream), 0))); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("stream with a byte too many: %v", err)
	}
	requireEqual(t, to, m)
	requireNoStray(t, to)
	if err := receive(to, meta, bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	requireEqual(t, to, sent)
	if digest(t, to) != digest(t, from) {
		t.Fatal("digests differ")
	}
}

func TestReceive_refusesTheScheduleOfThePast(t *testing.T) {
	from, sent := openStore(t, t.TempDir()), newModel()
	script(from, sent, operation{Accept: entries(10, 0, 1, 10)})
	flush(t, from, 1)
	to, m := openStore(t, t.TempDir()), newModel()
	for index := uint64(1); index <= 2; index++ {
		script(to, m, operation{Accept: entries(3, 0, 1, 10)})
		flush(t, to, index)
	}
	if err := transfer(from, to); !errors.Is(err, ErrPast) {
		t.Fatalf("transfer of index 1 to a schedule at 2: %v", err)
	}
	requireEqual(t, to, m)
	requireNoStray(t, to)
}
