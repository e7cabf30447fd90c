package raftfsm

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
)

const identityFile = "node.json"

// An identity says whose data directory this is. It is written when the
// directory is first used, and once more when the node is born: from then on it
// cannot become that of another.
type identity struct {
	NodeID      string            `json:"node_id"`
	ClusterName string            `json:"cluster_name"`
	Incarnation string            `json:"incarnation"` // random, tells a wiped disk from the one it was
	RaftID      string            `json:"raft_id"`     // "" while unborn
	Founders    map[string]string `json:"founders,omitempty"`
	Members     []Member          `json:"members,omitempty"` // as configured at birth
	Log         string            `json:"log,omitempty"`     // raft.log at birth
	Started     bool              `json:"started"`           // Raft has run on this disk
}

func (id identity) born() bool { return id.RaftID != "" }

// loadIdentity reads node.json, or makes one for an empty directory.
func loadIdentity(cfg memberConfig) (identity, error) {
	path := filepath.Join(cfg.DataDir, identityFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newIdentity(cfg)
	}
	if err != nil {
		return identity{}, fmt.Errorf("read %s: %w", path, err)
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return identity{}, fmt.Errorf("%w: read %s: %w", ErrDamaged, path, err)
	}
	return id, id.check(cfg)
}

func newIdentity(cfg memberConfig) (identity, error) {
	entries, err := os.ReadDir(cfg.DataDir)
	if err != nil {
		return identity{}, fmt.Errorf("read node.data_dir: %w", err)
	}
	for _, e := range entries {
		if slices.Contains(cfg.Parts, e.Name()) {
			return identity{}, fmt.Errorf("%w: node.data_dir %s holds %s but no %s: restore it%s",
				ErrDamaged, cfg.DataDir, e.Name(), identityFile, cfg.orReplace())
		}
	}
	return begin(cfg)
}

// begin writes the identity of a node that begins in this directory.
func begin(cfg memberConfig) (identity, error) {
	id := identity{NodeID: cfg.NodeID, ClusterName: cfg.ClusterName, Incarnation: rand.Text()}
	return id, id.save(cfg.DataDir)
}

// claimIdentity makes the directory of a node that was never born that of cfg: a
// mistake in the first configuration binds nobody. It becomes another incarnation,
// since members may count the old one among the founders. The caller holds the
// lock of the directory, so that nobody is born in it any more.
func claimIdentity(cfg memberConfig, log *slog.Logger) (identity, error) {
	id, err := loadIdentity(cfg)
	if err != nil || id.born() || id.NodeID == cfg.NodeID && id.ClusterName == cfg.ClusterName {
		return id, err
	}
	log.Info("data directory taken over from a node that was never born",
		"data_dir", cfg.DataDir, "was_node", id.NodeID, "was_cluster", id.ClusterName, "cluster", cfg.ClusterName)
	return begin(cfg)
}

// check compares the directory's owner and birth with the configuration.
func (id identity) check(cfg memberConfig) error {
	if !id.born() {
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
			ErrMembers, describe(cfg.Members), describe(id.Members))
	}
	if id.Log != cfg.Log {
		return fmt.Errorf("%w: raft.log: %q, but node.data_dir %s holds a log of kind %q: set that%s",
			ErrConfig, cfg.Log, cfg.DataDir, id.Log, cfg.orReplace())
	}
	if !id.Started {
		return nil
	}
	// Without its vote, or without entries that it has acknowledged, it could help
	// to elect a leader that lacks what is committed.
	for _, name := range cfg.Needed {
		if _, err := os.Stat(filepath.Join(cfg.DataDir, name)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: node.data_dir %s has lost %s: restore it%s",
				ErrDamaged, cfg.DataDir, name, cfg.orReplace())
		}
	}
	return nil
}

// start writes down that Raft runs on this disk: from now on what it needs must be there.
func (id identity) start(cfg memberConfig) (identity, error) {
	for _, name := range cfg.Needed {
		if err := syncDir(filepath.Join(cfg.DataDir, filepath.Dir(name))); err != nil {
			return identity{}, err
		}
	}
	id.Started = true
	return id, id.save(cfg.DataDir)
}

// save replaces node.json by rename, synced.
func (id identity) save(dir string) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", identityFile, err)
	}
	path := filepath.Join(dir, identityFile)
	if err := writeSynced(path+".tmp", append(b, '\n')); err != nil {
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
