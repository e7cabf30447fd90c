// Package reload keeps in force what some files say, and takes their changes while the
// program runs. What cannot be used changes nothing: the last that could stays in force.
package reload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// lookEvery is the time between two looks at the files. A change is taken when two looks
// have found the same: of a certificate and its key one is written first.
const lookEvery = time.Second

// judgeEvery is the time after which files that cannot be used are judged again as they are: they may be right
// since, as a certificate that was not valid yet by a clock that is behind.
const judgeEvery = 10 * time.Second

// mostRead bounds a file, in bytes.
const mostRead = 1 << 20

// A File is one that is read.
type File struct {
	Path string
	// Secret files are refused when anybody but their owner and group may read them, or
	// anybody but their owner write them.
	Secret bool
	// Optional files may be missing when the program starts: they are read as empty.
	Optional bool
}

// Read returns what is in the file; an error names it and what to do.
func (f File) Read() ([]byte, error) {
	info, err := os.Stat(f.Path) // before it is opened: opening a pipe would wait
	if errors.Is(err, fs.ErrNotExist) && f.Optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file: name one", f.Path)
	}
	if mode := info.Mode().Perm(); f.Secret && mode&0o027 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, so that others may read or change it: run chmod o-rwx,g-w %s", f.Path, mode, f.Path)
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostRead+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	if len(text) > mostRead {
		return nil, fmt.Errorf("%s has more than %d bytes: name another file", f.Path, mostRead)
	}
	return text, nil
}

// A Keeper has what its files said when they could last be used. Any goroutine may ask it.
type Keeper[T any] struct {
	key     string
	files   []File
	parse   func(texts [][]byte) (T, error)
	log     *slog.Logger
	inForce atomic.Pointer[said[T]]
	failing atomic.Bool

	// Of Open first, then of the goroutine in Run.
	found   []bool // files that were there once: that one is gone is no wish to be without it
	settled sight  // what was judged last
	problem string // that it has, "" if it is in force
}

// said is what files said, until it is replaced.
type said[T any] struct {
	value    T
	replaced chan struct{} // closed then
}

// Open reads the files and returns what keeps them, or why they cannot be used. The key is
// that of the configuration which names the files. Parse gets the text of each in their
// order, and must not keep them.
func Open[T any](key string, files []File, parse func(texts [][]byte) (T, error), log *slog.Logger) (*Keeper[T], error) {
	k := &Keeper[T]{key: key, files: files, parse: parse, log: log.With("component", "reload"), found: make([]bool, len(files))}
	texts, err := k.look()
	if err == nil {
		err = k.take(texts)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	k.settled = sight{texts: join(texts)}
	return k, nil
}

// InForce returns what the files said when they could last be used.
func (k *Keeper[T]) InForce() T { return k.inForce.Load().value }

// Replaced returns what is closed when that which is in force now is so no longer.
func (k *Keeper[T]) Replaced() <-chan struct{} { return k.inForce.Load().replaced }

// Failing reports whether the files, as they are now, cannot be used.
func (k *Keeper[T]) Failing() bool { return k.failing.Load() }

// Run takes changes until ctx ends, and returns nil then. One goroutine may run it.
func (k *Keeper[T]) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last, judged := k.settled, time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		texts, seen := k.see()
		if seen == last && (seen != k.settled || k.problem != "" && time.Since(judged) >= judgeEvery) {
			k.judge(texts, seen.problem)
			k.settled, judged = seen, time.Now()
		}
		last = seen
	}
}

// A sight is all the texts, or why they could not be read.
type sight struct{ texts, problem string }

func (k *Keeper[T]) see() ([][]byte, sight) {
	texts, err := k.look()
	if err != nil {
		return nil, sight{problem: err.Error()}
	}
	return texts, sight{texts: join(texts)}
}

func join(texts [][]byte) string {
	var all strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&all, "%d %t\n%s", len(text), text == nil, text)
	}
	return all.String()
}

func (k *Keeper[T]) look() ([][]byte, error) {
	texts := make([][]byte, len(k.files))
	var problems []error
	for i, file := range k.files {
		file.Optional = file.Optional && !k.found[i]
		var err error
		texts[i], err = file.Read()
		problems = append(problems, err)
	}
	return texts, errors.Join(problems...)
}

func (k *Keeper[T]) take(texts [][]byte) error {
	for i, text := range texts {
		k.found[i] = k.found[i] || text != nil
	}
	value, err := k.parse(texts)
	if err != nil {
		return err
	}
	if before := k.inForce.Swap(&said[T]{value: value, replaced: make(chan struct{})}); before != nil {
		close(before.replaced)
	}
	return nil
}

func (k *Keeper[T]) judge(texts [][]byte, problem string) {
	if problem == "" {
		if err := k.take(texts); err != nil {
			problem = err.Error()
		}
	}
	k.failing.Store(problem != "")
	again := problem != "" && problem == k.problem
	k.problem = problem
	switch {
	case again: // was told
	case problem != "":
		k.log.Error("changed file cannot be used, what it said before stays in force", "key", k.key, "error", problem)
	default:
		k.log.Info("changed file is in force", "key", k.key)
	}
}
