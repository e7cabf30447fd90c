package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
	"go.etcd.io/bbolt"
)

// writtenBolt is a file with branch pages, a bucket of its own pages, one within a value, values
// of several pages, and free pages.
func writtenBolt(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		err := db.Update(func(tx *bbolt.Tx) error {
			large, err := tx.CreateBucketIfNotExists([]byte("large"))
			if err != nil {
				return err
			}
			small, err := tx.CreateBucketIfNotExists([]byte("small"))
			if err != nil {
				return err
			}
			errs := []error{small.Put([]byte("key"), []byte{byte(round)}), large.Put([]byte("long"), make([]byte, 30_000*(3-round)))}
			for i := range 400 {
				errs = append(errs, large.Put(fmt.Appendf(nil, "%d-%d", i, round), make([]byte, 60)), large.Delete(fmt.Appendf(nil, "%d-%d", i, round-1)))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// content reads all keys and values after a commit, which takes free pages.
func boltContent(path string) (all []byte, err error) {
	db, err := OpenBolt(path, &bbolt.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	err = Guard(func() error {
		err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("small")).Put([]byte("new"), make([]byte, 9000)) })
		if err != nil {
			return err
		}
		return db.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
				return b.ForEach(func(k, v []byte) error {
					all = fmt.Appendf(all, "%s %d %s %d\n", name, len(k), k, len(v))
					return nil
				})
			})
		})
	})
	return all, err
}

// framed returns how many bytes at the beginning of a page are its head and its first elements,
// but for the last one: the lengths of that are told by what it holds.
func framed(page []byte) int {
	count := int(binary.NativeEndian.Uint16(page[10:]))
	switch binary.NativeEndian.Uint16(page[8:]) {
	case metaPage:
		return pageHeader + metaSize
	case branchPage, leafPage:
		return pageHeader + elementSize*max(0, min(count-1, 5))
	case freelistPage:
		return pageHeader + 8*min(count, 10)
	}
	return pageHeader
}

// Behind a frame that is found sound, bbolt finds what it has written, and commits over nothing.
func TestCheckBolt_findsWhatWouldMisleadBolt(t *testing.T) {
	path := writtenBolt(t)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckBolt(path, 2); err != nil {
		t.Fatal(err)
	}
	want, err := boltContent(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(4, 4))
	found := 0
	for range 600 {
		page := random.IntN(len(sound) / os.Getpagesize())
		at := page*os.Getpagesize() + random.IntN(framed(sound[page*os.Getpagesize():]))
		damaged := bytes.Clone(sound)
		damaged[at] ^= 1 << random.IntN(8)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckBolt(path, 2); err != nil {
			var damage *codec.Damage
			if !errors.As(err, &damage) || damage.File != path {
				t.Fatalf("byte %d: %v", at, err)
			}
			found++
			continue
		}
		got, err := boltContent(path)
		if err != nil || len(got) != len(want) {
			t.Errorf("byte %d of page %d was found sound, and %d bytes are read of %d: %v", at%os.Getpagesize(), page, len(got), len(want), err)
		}
	}
	if found < 60 {
		t.Errorf("%d of 600 flips were found", found)
	}
}
