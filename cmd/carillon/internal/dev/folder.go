package dev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carillonmq/carillon/broker/config"
)

// lockFolder makes the folder if need be and takes it for this process, until the
// file returned is closed or the process is no more.
func (d *Cluster) lockFolder() (*os.File, error) {
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(d.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = &config.FieldError{Field: "--data-dir", Value: d.Dir, Remedy: "another carillon dev runs on this folder; stop it or use another --data-dir"}
	default:
		err = fmt.Errorf("lock the data folder %s: %w", d.Dir, err)
	}
	lock.Close()
	return nil, err
}

// makeFolders makes a folder for Kafka and for each node before any of them starts.
// The nodes' folders tell heldNodes the size of the cluster, so the last comes first.
func (d *Cluster) makeFolders() error {
	names := []string{"kafka"}
	for i := range d.Nodes {
		names = append(names, nodeID(d.Nodes-1-i))
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(d.Dir, name), 0o700); err != nil {
			return fmt.Errorf("create the data folder: %w", err)
		}
	}
	return nil
}

// checkSize refuses the data of a cluster of another size.
func (d *Cluster) checkSize() error {
	held := d.heldNodes()
	if held == 0 || held == d.Nodes {
		return nil
	}
	return &config.FieldError{
		Field: "--nodes", Value: strconv.Itoa(d.Nodes),
		Remedy: fmt.Sprintf("%s holds a cluster of %d; use --nodes %d, another --data-dir, or remove the folder", d.Dir, held, held),
	}
}

// heldNodes returns the size of the cluster that the folder holds, 0 for none. One
// of three may lack a folder: a user takes it away to see a lost disk.
func (d *Cluster) heldNodes() int {
	held := func(i int) bool {
		_, err := os.Stat(filepath.Join(d.Dir, nodeID(i)))
		return err == nil
	}
	switch {
	case held(1), held(2):
		return 3
	case held(0):
		return 1
	}
	return 0
}
