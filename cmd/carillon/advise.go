package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// sameDisk is what else helps a node whose disk is gone. An older copy of the disk has forgotten votes and entries that
// others count on: such a node may have the cluster lose what it has acknowledged.
const sameDisk = "mount the same disk again, never an older copy of it"

// restore says what to do about a data directory that is damaged, of a node of a cluster
// of so many members. Where it has others, they have what it has lost. An id that is not
// known is empty.
func restore(id string, members int) string {
	switch {
	case id == "":
		return sameDisk + "; or, if the cluster has other members, empty the directory and run `carillon cluster replace` with the id of this one"
	case members == 1:
		return sameDisk + ", unless nothing else is left: it delivers again what was delivered since, and lacks what came since"
	}
	return sameDisk + ", or empty the directory and run `carillon cluster replace " + id + "`"
}

// advise returns what adds to a node's error what the user is to do about it. Where
// other members have what the node has lost, that is one of our commands.
func advise(c config.Config) func(error) error {
	replace := "run `carillon cluster replace " + c.Node.ID + "`"
	orReplace := ", or empty the directory and " + replace
	if len(c.Cluster.Members) == 1 {
		orReplace = ""
	}
	return func(err error) error {
		switch {
		case errors.Is(err, member.ErrOtherDisk):
			return fmt.Errorf("%w: %s against one of the others; if a majority of the members has lost its disks, nothing replaces them: mount the same disks again", err, replace)
		case errors.Is(err, member.ErrReplaced):
			return fmt.Errorf("%w: stop this node, empty the directory and start it again, it joins and copies the schedule", err)
		case errors.Is(err, raftfsm.ErrDamaged), errors.Is(err, storage.ErrCorrupt):
			return fmt.Errorf("%w: %s", err, restore(c.Node.ID, len(c.Cluster.Members)))
		case errors.Is(err, member.ErrOtherLog), errors.Is(err, node.ErrNoRoomToReceive):
			return fmt.Errorf("%w%s", err, orReplace)
		}
		return err
	}
}

// checkDataDir returns an error if the data directory is none that this process can work in; it makes one that is
// missing. It writes nothing to it: a node whose disk is full has to start.
func checkDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return badDataDir(dir, err)
	}
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return badDataDir(dir, &fs.PathError{Op: "access", Path: dir, Err: err})
	}
	return nil
}

// inDataDir adds to an error of a file of the data directory what is to be done about it, as where an earlier process
// of another user has left some. What has other causes stays as it is.
func inDataDir(dir string, err error) error {
	var file *fs.PathError
	if !errors.As(err, &file) || !strings.HasPrefix(file.Path, filepath.Clean(dir)+string(filepath.Separator)) {
		return err
	}
	if errors.Is(file, fs.ErrPermission) || errors.Is(file, syscall.EROFS) {
		return badDataDir(dir, err)
	}
	return err
}

func badDataDir(dir string, err error) error {
	remedy := "name a folder that can be made and written to"
	switch {
	case errors.Is(err, fs.ErrPermission):
		remedy = fmt.Sprintf("the user of this process, id %d, has to read and write it and all that is in it: make it and give it to that user (`chown -R %d %s`, `chmod -R u+rwX %s`), or name another folder", os.Geteuid(), os.Geteuid(), dir, dir)
	case errors.Is(err, syscall.EROFS):
		remedy = "its disk can only be read: mount it for writing, or name another folder"
	case errors.Is(err, syscall.ENOTDIR):
		remedy = "it is a file, or in one: name a folder"
	}
	return fmt.Errorf("%w: %w", &config.FieldError{Field: "node.data_dir", Value: dir, Remedy: remedy}, err)
}
