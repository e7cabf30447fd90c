//go:build !race

// With the race detector this takes two minutes, and there is one goroutine.

package storage

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

func TestOpen_reportsFlippedBits(t *testing.T) {
	for name, level := range map[string]Level{"level one": LevelOne, "level two": LevelTwo, "level three": LevelThree} {
		t.Run(name, func(t *testing.T) { reportsFlippedBits(t, level) })
	}
}

func reportsFlippedBits(t *testing.T, level Level) {
	dir, m := damaged(t, level)
	random := rand.New(rand.NewPCG(1, 2))
	for _, path := range storeFiles(t, dir) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var places []int // in the heads of pages, and anywhere
		for range 200 {
			page := random.IntN(max(1, len(content)/os.Getpagesize())) * os.Getpagesize()
			places = append(places, page+random.IntN(min(96, len(content))), random.IntN(len(content)))
		}
		noticed := 0
		for i, at := range places {
			bit := byte(1) << random.IntN(8)
			flip(t, path, at, bit)
			found := new(Inspection)
			if i%16 == 0 {
				if found, err = Inspect(dir); err != nil {
					t.Fatalf("inspect with bit %d of byte %d of %s flipped: %v", bit, at, path, err)
				}
			}
			err := readEverything(t, dir, m)
			if err != nil {
				requireTyped(t, err)
				noticed++
			}
			if i%16 == 0 && (err != nil) != (len(found.Damages) > 0) || len(found.Damages) > 0 && found.Damages[0].File != path {
				t.Errorf("bit %d of byte %d of %s flipped: inspected %+v, read with %v", bit, at, path, found.Damages, err)
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s: %d of %d flips reported, the others without effect", filepath.Base(path), noticed, len(places))
		if filepath.Base(path) != manifestName && noticed < len(places)/8 {
			t.Errorf("%d of %d flips reported", noticed, len(places))
		}
	}
	if err := readEverything(t, dir, m); err != nil {
		t.Fatalf("repaired: %v", err)
	}
}
