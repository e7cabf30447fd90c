package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk is an ext4 file system in a file, which can lose power and fill up.
type disk struct {
	t          testing.TB
	image, dir string // dir is where it is mounted
}

func newDisk(t testing.TB, size int64) *disk {
	t.Helper()
	needs(t, "mkfs.ext4", "mount", "umount")
	needsRoot(t)
	d := &disk{t: t, image: filepath.Join(t.TempDir(), "image"), dir: t.TempDir()}
	write(t, d.image, nil)
	if err := os.Truncate(d.image, size); err != nil {
		t.Fatal(err)
	}
	run(t, ".", nil, "mkfs.ext4", "-q", "-m", "0", d.image)
	d.mount()
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) }) // a failed test leaves it mounted
	return d
}

func (d *disk) mount() {
	d.t.Helper()
	run(d.t, ".", nil, "mount", "-o", "loop", d.image, d.dir)
}

// cutPower makes every further access fail and forgets what was not synced.
func (d *disk) cutPower() {
	d.t.Helper()
	if err := cutOff(d.dir); err != nil {
		d.t.Fatal(err)
	}
}

// cutOff does that to the disk that is mounted there.
func cutOff(mount string) error {
	const shutdown, withoutLogFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN
	root, err := os.Open(mount)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := unix.IoctlSetPointerInt(int(root.Fd()), shutdown, withoutLogFlush); err != nil {
		return fmt.Errorf("cut the power of %s: %w", mount, err)
	}
	return nil
}

// remount shows what the power cut left. Nothing may use the disk.
func (d *disk) remount() {
	d.t.Helper()
	run(d.t, ".", nil, "umount", d.dir)
	d.mount()
}

// fill writes a file that leaves about rest bytes free, and returns what removes it.
func (d *disk) fill(rest int64) (free func()) {
	d.t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(d.dir, &fs); err != nil {
		d.t.Fatal(err)
	}
	ballast := filepath.Join(d.dir, "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fallocate(int(file.Fd()), 0, 0, int64(fs.Bavail)*fs.Bsize-rest); err != nil {
		d.t.Fatalf("fill the disk: %v", err)
	}
	return func() {
		if err := os.Remove(ballast); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *disk) subdirs(names ...string) []string {
	d.t.Helper()
	var dirs []string
	for _, name := range names {
		dir := filepath.Join(d.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			d.t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// lacksDisks returns why no disk can be made here, or nothing.
func lacksDisks() string {
	if os.Geteuid() != 0 {
		return "not run as root"
	}
	for _, program := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed"
		}
	}
	return ""
}
