package member

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/codec"
)

const identityFile = "node.json"

// An Identity says whose data directory this is. It is written when the
// directory is first used, and once more when the node is born: from then on it
// cannot become that of another.
type Identity struct {
	NodeID      string            `json:"node_id"`
	ClusterName string            `json:"cluster_name"`
	Incarnation string            `json:"incarnation"` // random, tells a wiped disk from the one it was
	RaftID      string            `json:"raft_id"`     // "" while unborn
	Founders    map[string]string `json:"founders,omitempty"`
	Members     []Member          `json:"members,omitempty"` // as configured at birth
	Log         string            `json:"log,omitempty"`     // raft.log at birth
	Started     bool              `json:"started"`           // Raft has run on this disk

	// Sum is CRC-32C over all else as it is written without one, in hex. It is there
	// from storage.LevelTwo on; older programs do not look at it.
	Sum string `json:"sum,omitempty"`
}

// Born reports whether the node has been part of its cluster.
func (id Identity) Born() bool { return id.RaftID != "" }

// Load reads node.json, or makes one for an empty directory.
func Load(cfg Config) (Identity, error) {
	id, err := Read(cfg.DataDir, cfg.Parts)
	if errors.Is(err, fs.ErrNotExist) {
		return begin(cfg)
	}
	if err != nil {
		return Identity{}, err
	}
	return id, id.check(cfg)
}

// Read reads node.json and compares what it says with itself. The error is fs.ErrNotExist
// in a directory that is nobody's yet: none of the parts of a data directory is there
// either. It is raftfsm.ErrDamaged otherwise, or the system's.
func Read(dir string, parts []string) (Identity, error) {
	path := filepath.Join(dir, identityFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, refuseParts(dir, parts)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("read %s: %w", path, err)
	}
	var id Identity
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields() // a damaged name would leave its field empty
	if err = decoder.Decode(&id); err == nil {
		err = id.compare()
	}
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", raftfsm.ErrDamaged, &codec.Damage{File: path, Offset: -1, Err: err})
	}
	return id, nil
}

func (id Identity) sum() string {
	id.Sum = ""
	return fmt.Sprintf("%08x", codec.Checksum(id.encode()))
}

// encode returns the bytes of node.json.
func (id Identity) encode() []byte {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		panic(err) // strings and flags, which JSON can say
	}
	return append(b, '\n')
}

// Seal adds the checksum. The feature level must allow it.
func (id Identity) Seal(dir string) (Identity, error) {
	if id.Sum == id.sum() {
		return id, nil
	}
	id.Sum = id.sum()
	return id, id.Save(dir)
}

// refuseParts returns fs.ErrNotExist unless a directory without node.json has some.
func refuseParts(dir string, parts []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read node.data_dir: %w", err)
	}
	for _, e := range entries {
		if slices.Contains(parts, e.Name()) {
			return fmt.Errorf("%w: %w", raftfsm.ErrDamaged, &codec.Damage{
				File: filepath.Join(dir, identityFile), Offset: -1,
				Err: fmt.Errorf("node.data_dir %s holds %s but no %s", dir, e.Name(), identityFile),
			})
		}
	}
	return fmt.Errorf("%s: %w", filepath.Join(dir, identityFile), fs.ErrNotExist)
}

// compare returns what no node has written.
func (id Identity) compare() error {
	born := id.Born()
	switch {
	case id.Sum != "" && id.Sum != id.sum():
		return fmt.Errorf("it has checksum %s, written with %s", id.sum(), id.Sum)
	case id.NodeID == "" || id.ClusterName == "" || len(id.Incarnation) != len(rand.Text()):
		return fmt.Errorf("node %q of cluster %q, incarnation %q", id.NodeID, id.ClusterName, id.Incarnation)
	case born != (len(id.Members) > 0) || id.Started && !born:
		return fmt.Errorf("raft_id %q, started %v and %d members do not go together", id.RaftID, id.Started, len(id.Members))
	case born && Of(id.RaftID) != id.NodeID:
		return fmt.Errorf("raft_id %q is none of node %q", id.RaftID, id.NodeID)
	case born && !slices.ContainsFunc(id.Members, func(m Member) bool { return m.ID == id.NodeID }):
		return fmt.Errorf("node %q is not one of the members %s", id.NodeID, Describe(id.Members))
	}
	return nil
}

// begin writes the identity of a node that begins in this directory.
func begin(cfg Config) (Identity, error) {
	id := Identity{NodeID: cfg.NodeID, ClusterName: cfg.ClusterName, Incarnation: rand.Text()}
	return id, id.Save(cfg.DataDir)
}

// Claim makes the directory of a node that was never born that of cfg: a
// mistake in the first configuration binds nobody. It becomes another incarnation,
// since members may count the old one among the founders. The caller holds the
// lock of the directory, so that nobody is born in it any more.
func Claim(cfg Config, log *slog.Logger) (Identity, error) {
	id, err := Load(cfg)
	if err != nil || id.Born() || id.NodeID == cfg.NodeID && id.ClusterName == cfg.ClusterName {
		return id, err
	}
	log.Info("data directory taken over from a node that was never born",
		"data_dir", cfg.DataDir, "was_node", id.NodeID, "was_cluster", id.ClusterName, "cluster", cfg.ClusterName)
	return begin(cfg)
}

// Birth returns the identity of a node that is born by d, which follows from answers.
func (id Identity) Birth(d Decision, cfg Config, answers map[string]Standing) Identity {
	id.Members, id.Log = cfg.Members, cfg.Log
	id.RaftID = d.RaftID
	if d.Found {
		id.RaftID = id.NodeID
		id.Founders = founders(id, answers)
	}
	return id
}

// Confirm looks whether the directory of cfg is still the one that id was made for. It returns nil,
// raftfsm.ErrDamaged if files of it were deleted, or another directory has taken its place, while the
// node ran, or the system's error. What is open goes on in files that no path leads to, and nothing of
// them is there after the process ends.
func (id Identity) Confirm(cfg Config) error {
	now, err := Read(cfg.DataDir, cfg.Parts)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: node.data_dir %s was emptied or unmounted while the node ran", raftfsm.ErrDamaged, cfg.DataDir)
	case errors.Is(err, syscall.EIO): // what is in the page cache would go on for a while
		return fmt.Errorf("%w: node.data_dir %s: its disk fails: %w", raftfsm.ErrDamaged, cfg.DataDir, err)
	case err != nil:
		return err
	case now.Incarnation != id.Incarnation:
		return fmt.Errorf("%w: node.data_dir %s was replaced by that of another life of %q while the node ran", raftfsm.ErrDamaged, cfg.DataDir, now.NodeID)
	}
	for _, name := range cfg.Parts {
		if _, err := os.Stat(filepath.Join(cfg.DataDir, name)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: node.data_dir %s has lost %s while the node ran", raftfsm.ErrDamaged, cfg.DataDir, name)
		}
	}
	return now.check(cfg)
}

// check compares the directory's owner and birth with the configuration.
func (id Identity) check(cfg Config) error {
	if !id.Born() {
		return nil
	}
	if id.NodeID != cfg.NodeID {
		return fmt.Errorf("%w: node.data_dir %s belongs to node %q, not to node.id %q: give each node a directory of its own", ErrForeignData, cfg.DataDir, id.NodeID, cfg.NodeID)
	}
	if id.ClusterName != cfg.ClusterName {
		return fmt.Errorf("%w: node.data_dir %s belongs to cluster %q, not to cluster.name %q: use another directory or the old name", ErrForeignData, cfg.DataDir, id.ClusterName, cfg.ClusterName)
	}
	if !sameGroup(id.Members, cfg.Members) {
		return fmt.Errorf("%w: cluster.members is %s, but this node was born with %s: restore the old list, it cannot be changed by configuration",
			ErrMembers, Describe(cfg.Members), Describe(id.Members))
	}
	if id.Log != cfg.Log {
		return fmt.Errorf("%w: raft.log: %q, but node.data_dir %s holds a log of kind %q: set that", ErrOtherLog, cfg.Log, cfg.DataDir, id.Log)
	}
	if !id.Started {
		return nil
	}
	// Without its vote, or without entries that it has acknowledged, it could help
	// to elect a leader that lacks what is committed.
	for _, name := range cfg.Needed {
		stat, err := os.Stat(filepath.Join(cfg.DataDir, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && stat.Size() == 0 { // bbolt begins an empty file anew
			return fmt.Errorf("%w: node.data_dir %s has lost %s", raftfsm.ErrDamaged, cfg.DataDir, name)
		}
	}
	return nil
}

// Start writes down that Raft runs on this disk: from now on what it needs must be there.
func (id Identity) Start(cfg Config) (Identity, error) {
	for _, name := range cfg.Needed {
		if err := syncDir(filepath.Join(cfg.DataDir, filepath.Dir(name))); err != nil {
			return Identity{}, err
		}
	}
	id.Started = true
	return id, id.Save(cfg.DataDir)
}

// Save replaces node.json by rename, synced.
func (id Identity) Save(dir string) error {
	if id.Sum != "" {
		id.Sum = id.sum()
	}
	path := filepath.Join(dir, identityFile)
	if err := writeSynced(path+".tmp", id.encode()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(dir)
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}
