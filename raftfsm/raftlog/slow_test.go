package raftlog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

// A slowDisk takes a second for each sync of a segment.
type slowDisk struct{ types.VFS }

func (d slowDisk) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := d.VFS.Create(dir, name, size)
	return slowFile{f}, err
}

type slowFile struct{ types.WritableFile }

func (f slowFile) Sync() error {
	time.Sleep(time.Second)
	return f.WritableFile.Sync()
}

// Raft cuts the log in another goroutine than it appends. Where time is virtual it stands still
// while somebody waits for a mutex, and then no sync would ever end.
func TestSegmentLog_isCutWhileItWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openTestSegmentLog(t, t.TempDir(), slowDisk{fs.New()})
		for i := range uint64(5) {
			if err := l.StoreLog(entry(i+1, 10)); err != nil {
				t.Fatal(err)
			}
		}
		stored := make(chan error)
		go func() { stored <- l.StoreLog(entry(6, 10)) }()
		synctest.Wait()
		if err := l.DeleteRange(1, 3); err != nil {
			t.Error(err)
		}
		if err := <-stored; err != nil {
			t.Error(err)
		}
		holds(t, l, 4, 6)
	})
}
