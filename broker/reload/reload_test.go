package reload

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// kept is a Keeper of two files whose texts must begin alike, as those of a certificate
// and its key do.
type kept struct {
	t    *testing.T
	dir  string
	log  bytes.Buffer
	keep *Keeper[string]
	from time.Time // when "later" can be used
}

func (k *kept) write(name, text string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kept) open() error {
	var err error
	files := []File{{Path: filepath.Join(k.dir, "cert")}, {Path: filepath.Join(k.dir, "key"), Secret: true}}
	k.keep, err = Open("api.tls", files, func(texts [][]byte) (string, error) {
		cert, key := string(texts[0]), string(texts[1])
		if !strings.HasPrefix(key, cert) {
			return "", errors.New("they are no pair: name the key of this certificate")
		}
		if cert == "later" && time.Now().Before(k.from) {
			return "", errors.New("it is not valid yet: correct this machine's clock")
		}
		return cert, nil
	}, slog.New(slog.NewTextHandler(&k.log, nil)))
	return err
}

// watched opens the files and runs what follows in a bubble beside their keeper.
func watched(t *testing.T, then func(k *kept)) {
	k := &kept{t: t, dir: t.TempDir()}
	k.write("cert", "a")
	k.write("key", "a-key")
	synctest.Test(t, func(t *testing.T) {
		k.t = t
		if err := k.open(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.keep.Run(ctx) }()
		then(k)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// logged returns the log, once nobody writes to it.
func (k *kept) logged() string {
	synctest.Wait()
	return k.log.String()
}

func (k *kept) expect(inForce string, failing bool) {
	k.t.Helper()
	synctest.Wait()
	if k.keep.InForce() != inForce || k.keep.Failing() != failing {
		k.t.Errorf("%q is in force, failing: %t; want %q, %t; log:\n%s", k.keep.InForce(), k.keep.Failing(), inForce, failing, &k.log)
	}
}

func TestKeeper_takesAChange(t *testing.T) {
	watched(t, func(k *kept) {
		k.write("cert", "b")
		k.write("key", "b-key")
		time.Sleep(2*lookEvery + time.Millisecond)
		k.expect("b", false)
	})
}

// Of a pair one is written first: what is there for a moment is not judged.
func TestKeeper_waitsUntilAChangeHasSettled(t *testing.T) {
	watched(t, func(k *kept) {
		time.Sleep(lookEvery / 2)
		k.write("cert", "b")
		time.Sleep(lookEvery)
		k.write("key", "b-key")
		time.Sleep(2 * lookEvery)
		k.expect("b", false)
		if strings.Contains(k.logged(), "level=ERROR") {
			t.Errorf("log:\n%s", &k.log)
		}
	})
}

func TestKeeper_keepsTheOldWhenTheNewCannotBeUsed(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(k *kept)
		says  string
	}{
		"one that does not fit": {func(k *kept) { k.write("cert", "b") }, "they are no pair: name the key of this certificate"},
		"one that is gone":      {func(k *kept) { os.Remove(filepath.Join(k.dir, "key")) }, "no such file or directory"},
		"one that others may read": {func(k *kept) { os.Chmod(filepath.Join(k.dir, "key"), 0o644) },
			"has mode 0644, so that others may read or change it: run chmod o-rwx,g-w "},
		"one without end": {func(k *kept) { k.write("key", strings.Repeat("a", mostRead+1)) }, "has more than 1048576 bytes"},
		"a folder": {func(k *kept) {
			os.Remove(filepath.Join(k.dir, "cert"))
			os.Mkdir(filepath.Join(k.dir, "cert"), 0o700)
		}, "is no file: name one"},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(k *kept) {
				test.spoil(k)
				time.Sleep(10 * lookEvery)
				k.expect("a", true)
				if log := k.logged(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "key=api.tls") || !strings.Contains(log, test.says) {
					t.Errorf("want one line that says %q, got:\n%s", test.says, log)
				}
				os.Remove(filepath.Join(k.dir, "cert"))
				k.write("cert", "c")
				k.write("key", "c-key")
				if err := os.Chmod(filepath.Join(k.dir, "key"), 0o640); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * lookEvery)
				k.expect("c", false)
			})
		})
	}
}

// What a clock that is behind does not take is right a moment later, and nobody writes it again.
func TestKeeper_judgesAgainWhatItCouldNotUse(t *testing.T) {
	watched(t, func(k *kept) {
		k.from = time.Now().Add(25 * time.Second)
		k.write("cert", "later")
		k.write("key", "later-key")
		time.Sleep(24 * time.Second)
		k.expect("a", true)
		time.Sleep(judgeEvery + lookEvery)
		k.expect("later", false)
		if log := k.logged(); strings.Count(log, "level=ERROR") != 1 || strings.Count(log, "changed file is in force") != 1 {
			t.Errorf("want one line of each, got:\n%s", log)
		}
	})
}

func TestOpen_refusesWhatItCannotUse(t *testing.T) {
	k := &kept{t: t, dir: t.TempDir()}
	if err := k.open(); err == nil || !strings.HasPrefix(err.Error(), "api.tls: ") || !strings.Contains(err.Error(), "cert") || !strings.Contains(err.Error(), "key") {
		t.Errorf("got %v", err)
	}
}

// The first token is made while the nodes run.
func TestKeeper_takesAnOptionalFileThatComesLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		k, err := Open("api.tokens", []File{{Path: path, Secret: true, Optional: true}}, func(texts [][]byte) (string, error) {
			return string(texts[0]), nil
		}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.Run(ctx)
		time.Sleep(5 * lookEvery)
		synctest.Wait()
		if k.InForce() != "" || k.Failing() || log.Len() > 0 {
			t.Errorf("%q before there is a file, failing: %t, log:\n%s", k.InForce(), k.Failing(), &log)
		}
		if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * lookEvery)
		if k.InForce() != "one" {
			t.Errorf("%q is in force", k.InForce())
		}
		os.Remove(path)
		time.Sleep(3 * lookEvery)
		if k.InForce() != "one" || !k.Failing() {
			t.Errorf("a file that is gone: %q is in force, failing: %t", k.InForce(), k.Failing())
		}
	})
}
