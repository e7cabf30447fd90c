package storage

import (
	"context"
	"io"
)

// Frozen is the schedule as it was at one log index, to be written to disk.
type Frozen struct{ s *Store }

func (s *Store) Freeze() *Frozen                                 { return &Frozen{s} }
func (f *Frozen) Flush(meta SnapshotMeta) error                  { return errNotBuilt }
func (f *Frozen) Release()                                       {}
func (s *Store) Merge(ctx context.Context) (did bool, err error) { return false, nil }
func (s *Store) Reload() error                                   { return nil }
func (s *Store) ManifestMeta() SnapshotMeta                      { return SnapshotMeta{} }
func (s *Store) ManifestIndex() uint64                           { return s.ManifestMeta().Index }
func (s *Store) FreeSpace() (uint64, error)                      { return 1 << 62, nil }
func (s *Store) Check() error                                    { return nil }
func (s *Store) Digest() ([32]byte, error)                       { return [32]byte{}, nil }
func (s *Store) OpenStream() (meta SnapshotMeta, size int64, rc io.ReadCloser, err error) {
	return SnapshotMeta{}, 0, nil, errNotBuilt
}

// Receiver takes a stream that another store's OpenStream sends.
type Receiver struct{}

func (s *Store) Receive(meta SnapshotMeta) (*Receiver, error) { return nil, errNotBuilt }
func (r *Receiver) Write(p []byte) (int, error)               { return 0, errNotBuilt }
func (r *Receiver) Commit() error                             { return errNotBuilt }
func (r *Receiver) Abort()                                    {}

func (s *Store) Scan(from Ref, max int, keep func(target string) bool, out []Item) (items []Item, next Ref, done bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	done = true
	s.table.ascend(from, func(e Entry) bool {
		if len(out) == max {
			next, done = e.Ref(), false
			return false
		}
		if keep == nil || keep(e.Target) {
			out = append(out, Item{Ref: e.Ref(), Target: e.Target, Size: len(e.Body)})
		}
		return true
	})
	return out, next, done, nil
}

func (s *Store) Read(refs []Ref, out []Entry) ([]Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range refs {
		if e, ok := s.table.get(r.Seq); ok && e.Due == r.Due {
			out = append(out, e)
		}
	}
	return out, nil
}
