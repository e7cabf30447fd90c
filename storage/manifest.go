package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/codec"
	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/segment"
	"go.etcd.io/bbolt"
)

// manifest names what the node's schedule on disk consists of. Its file is a
// small bbolt database of synced commits, and every value in it is a record:
//
//	manifest.db
//	  bucket "manifest"   "head"   commit number, generation, snapshot meta,
//	                               above LevelOne the file of the alive-set
//	                      "state"  the replicated values, at LevelOne
//	                      "alive"  the alive-set at the meta's index, at LevelOne
//	  bucket "state"      "state"  the replicated values, above LevelOne
//	  bucket "segments"   id u64   what segments/<id in 16 hex digits>.seg holds
type manifest struct {
	dir  string
	sets alive.Dir
	log  *slog.Logger

	// mu is held over a commit and its syncs. It comes before Store.mu.
	mu      sync.Mutex
	db      *bbolt.DB
	current contents
	err     error // ErrClosed or ErrFailed: the file is not to be touched
	// suspect is set when a sync of the alive-set's file failed: what was appended
	// may never reach the disk, so nothing is appended any more. It ends with the
	// commit that names a file of its own.
	suspect bool

	// meta is current's, for those who must not wait for a commit.
	meta   atomic.Pointer[SnapshotMeta]
	lastID atomic.Uint64 // of a segment file, or one of the alive-set
}

const (
	manifestName = "manifest.db"
	segmentsName = "segments"
	segmentExt   = ".seg"
	aliveName    = "alive"
)

// openManifest opens or creates the manifest in dir, opens the segments it names
// and removes those it does not.
func openManifest(dir string, log *slog.Logger) (*manifest, error) {
	if err := os.MkdirAll(filepath.Join(dir, segmentsName), 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	m := &manifest{dir: dir, sets: alive.Dir{Path: filepath.Join(dir, aliveName)}, log: log}
	if err := m.create(); err != nil {
		return nil, fmt.Errorf("create manifest: %w", disk.MarkFull(err))
	}
	if err := m.openFile(); err != nil {
		return nil, fmt.Errorf("open %s: %w", m.path(), err)
	}
	if err := m.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("load %s: %w", m.path(), err), m.close())
	}
	if err := m.settle(); err != nil {
		return nil, errors.Join(fmt.Errorf("settle %s: %w", m.path(), err), m.close())
	}
	if err := m.removeUnnamed(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *manifest) path() string { return filepath.Join(m.dir, manifestName) }

// freshPath is where a file is written that is to replace the manifest.
func (m *manifest) freshPath() string { return m.path() + ".new" }

func (m *manifest) segmentsDir() string { return filepath.Join(m.dir, segmentsName) }

func (m *manifest) segmentPath(id uint64) string {
	return filepath.Join(m.segmentsDir(), fmt.Sprintf("%016x%s", id, segmentExt))
}

// create makes an empty manifest where there is none.
func (m *manifest) create() error {
	if _, err := os.Stat(m.path()); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := m.refuseOrphans(); err != nil {
		return err
	}
	empty := emptyContents()
	return m.replaceFile(&empty)
}

// refuseOrphans returns ErrCorrupt if there are files that a manifest must have named.
func (m *manifest) refuseOrphans() error {
	for _, dir := range []string{m.segmentsDir(), m.sets.Path} {
		files, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if len(files) > 0 {
			return codec.DamageAt(m.path(), -1, "the manifest is missing beside %d files of %s; restore the node from the others", len(files), dir)
		}
	}
	return nil
}

// replaceFile makes a new file that names c the manifest. It has another name
// first: a crash leaves the file before or this one, whole.
func (m *manifest) replaceFile(c *contents) error {
	fresh := m.freshPath()
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	db, err := bbolt.Open(fresh, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return err
	}
	if err := errors.Join(write(db, c, nil), db.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, m.path()); err != nil {
		return err
	}
	return disk.SyncDir(m.dir)
}

func (m *manifest) openFile() (err error) {
	// One meta page is enough: both lead to the same (see write).
	m.db, err = disk.OpenCheckedBolt(m.path(), 1, &bbolt.Options{Timeout: time.Second, NoStatistics: true, FreelistType: bbolt.FreelistMapType})
	return err
}

// settle makes durable what was read, on which logs are cut and cleared: the process before may have been killed before a
// commit was synced. Where a sync failed that is not enough, since what it was to write counts as written. Such a file was to be
// replaced (recover), and what is left of that tells if it was not.
func (m *manifest) settle() error {
	if err := disk.SyncFile(m.path()); err != nil {
		return err
	}
	if _, err := os.Stat(m.freshPath()); err != nil {
		return nil // it is not there
	}
	err := disk.MarkFull(m.startAnew(&m.current))
	if errors.Is(err, disk.ErrFull) { // only a node that runs makes room
		m.log.Warn("no room to write the manifest anew, which a sync that failed calls for: the next start tries it again", "error", err)
		return m.openFile()
	}
	return err
}

// load reads everything into current and opens the segments.
func (m *manifest) load() error {
	named, records, err := m.read()
	if err != nil {
		return err
	}
	// Beside the segments, since with a hundred million pending either takes some tenths of a second.
	loaded := make(chan error, 1)
	go func() {
		var err error
		if named.stored.ID != 0 {
			named.alive, err = m.sets.Load(named.stored)
		}
		loaded <- err
	}()
	named.segments, err = m.openSegments(records)
	err = errors.Join(err, <-loaded)
	if err == nil {
		named.outcomes, err = m.readOutcomes(named.level())
	}
	if err == nil {
		err = named.check()
	}
	if err != nil {
		segment.ReleaseAll(named.segments)
		return err
	}
	m.setCurrent(named)
	return nil
}

// openSegments returns the segments by seq, or those that it could open with an error.
func (m *manifest) openSegments(named segmentRecords) (segments []*segment.Segment, err error) {
	for i, id := range named.ids {
		s, err := segment.Open(m.segmentPath(id), id, named.records[i], m.log)
		if err != nil {
			return segments, err
		}
		segments = append(segments, s)
	}
	sortBySeq(segments)
	return segments, nil
}

// removeUnnamed removes files that a crash left before they were named, or after
// they no longer were.
func (m *manifest) removeUnnamed() error {
	named := make(map[string]bool)
	for _, s := range m.current.segments {
		named[s.Path] = true
		m.lastID.Store(max(m.lastID.Load(), s.ID))
	}
	if id := m.current.stored.ID; id != 0 {
		named[m.sets.PathOf(id)] = true
		m.lastID.Store(max(m.lastID.Load(), id))
	}
	if err := m.removeOthers(m.segmentsDir(), segmentExt, named); err != nil {
		return fmt.Errorf("remove unnamed segments: %w", err)
	}
	err := m.removeOthers(m.sets.Path, alive.Ext, named)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove unnamed alive-sets: %w", err)
	}
	return nil
}

func (m *manifest) removeOthers(dir, ext string, named map[string]bool) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		if named[path] {
			continue
		}
		hex, ok := strings.CutSuffix(f.Name(), ext)
		if _, err := strconv.ParseUint(hex, 16, 64); err != nil || !ok {
			m.log.Warn("leaving a file that is not ours", "path", path)
			continue
		}
		m.log.Info("removing a file that the manifest does not name", "path", path)
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// newSegment returns a path that no file has had.
func (m *manifest) newSegment() (id uint64, path string) {
	id = m.lastID.Add(1)
	return id, m.segmentPath(id)
}

// close lets go of the file and of the segments.
func (m *manifest) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(m.err, ErrClosed) {
		return nil
	}
	m.err = ErrClosed
	segment.ReleaseAll(m.current.segments)
	m.current.segments = nil
	if m.db == nil { // it failed and could not be opened again
		return nil
	}
	return m.db.Close()
}

// commit makes next what the manifest names, or changes nothing. Its segments
// must be durable, their names too, and so must a file of the alive-set that next
// brings in, which is removed if the commit fails. The caller holds mu.
//
// Segments that next names no longer lose the manifest's reference. They are
// unlinked after this commit, never before: a crash in between leaves a file
// that the next start removes, the other order would leave a name without a file.
func (m *manifest) commit(next contents) error {
	if m.err != nil {
		return m.err
	}
	next.number = m.current.number + 1
	if err := m.storeAlive(&next); err != nil {
		return err
	}
	err := write(m.db, &next, &m.current)
	if err == nil {
		m.replace(next)
		return nil
	}
	err = m.recover(&next, err)
	if err != nil && m.err == nil && next.stored.ID != m.current.stored.ID {
		m.removeAlive(next.stored.ID)
	}
	return err
}

// replace lets go of the segments that next leaves out, and of the file of the
// alive-set if it has another one.
func (m *manifest) replace(next contents) {
	before, stored := m.current.segments, m.current.stored.ID
	m.setCurrent(next)
	if stored != next.stored.ID {
		m.removeAlive(stored)
		m.suspect = false
	}
	for _, s := range before {
		if !slices.Contains(next.segments, s) {
			s.Doom()
			s.Release()
		}
	}
}

func (m *manifest) setCurrent(c contents) {
	m.current = c
	m.meta.Store(&c.meta)
}

// recover decides about a commit that returned an error. The file is opened anew
// to see whether bbolt wrote the meta page that leads to the commit.
//
// If it did not, nothing has changed: the commit before is whole and was synced.
// If it did, the sync after it failed, and the kernel may count pages as written
// that never reached the disk: another sync of them proves nothing, and a further
// commit would write over pages that the commit before still needs after a power
// cut. So all is written into a new file. If that fails nothing is known and
// nothing more is written: neither may the commit's segments be removed nor the
// old ones be relied on.
func (m *manifest) recover(next *contents, cause error) error {
	m.log.Error("manifest commit failed", "commit", next.number, "error", cause)
	_ = os.WriteFile(m.freshPath(), nil, 0o600) // should this process end before it is decided, the next start decides (settle)
	_ = m.db.Close()                            // where that leaves it locked, it cannot be opened again
	number, err := m.reopen()
	if err == nil && number == m.current.number {
		_ = os.Remove(m.freshPath())
		return cause
	}
	if err == nil {
		err = m.startAnew(next)
	}
	if err != nil {
		m.err = fmt.Errorf("%w: %w, then: %w", ErrFailed, cause, err)
		return m.err
	}
	m.replace(*next)
	return nil
}

// reopen returns the number of the commit that the file leads to.
func (m *manifest) reopen() (uint64, error) {
	if err := m.openFile(); err != nil {
		return 0, err
	}
	named, _, err := m.read()
	return named.number, err
}

// startAnew goes on with a new file that names c. The old one stays locked until
// the new one has its name.
func (m *manifest) startAnew(c *contents) error {
	old := m.db
	err := m.replaceFile(c)
	_ = old.Close() // nothing of it counts any more
	if err != nil {
		return fmt.Errorf("write the manifest anew: %w", err)
	}
	return m.openFile()
}

// write puts what differs from before (nil: everything) into one transaction,
// and the head into another. bbolt keeps two meta pages and falls back to the
// older one when the newer is damaged, without a word: a flipped bit would bring
// back the commit before, whose log is truncated already. With a second
// transaction that changes nothing both lead to the same contents. A power cut
// between the two is harmless: the first is whole by then.
func write(db *bbolt.DB, next, before *contents) error {
	err := db.Update(func(tx *bbolt.Tx) error { return next.put(tx, before) })
	if err == nil {
		err = db.Update(next.putHead)
	}
	if err != nil {
		return fmt.Errorf("write manifest: %w", disk.MarkFull(err))
	}
	return nil
}

func sortBySeq(segments []*segment.Segment) {
	slices.SortStableFunc(segments, func(a, b *segment.Segment) int { return a.Info.Compare(&b.Info) })
}
