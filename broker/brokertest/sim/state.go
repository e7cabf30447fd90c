package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
)

// A state is a file that has what the seeds played so far have shown, so that a run goes on where
// the last one was ended. It is lines of JSON: what was played, then one line a seed. A last line
// that was not written whole is left out. Beside it lies the coverage.
type state struct {
	file     *os.File
	path     string
	done     map[uint64]record
	coverage *coverage
}

// A subject is what seeds are played against: with another one nothing that is known holds.
type subject struct {
	Binary  string       `json:"binary"` // its hash
	Profile draw.Profile `json:"profile"`
}

// A record is what one seed has shown.
type record struct {
	Seed   uint64  `json:"seed"`
	Millis int64   `json:"millis"` // of real time
	Scale  string  `json:"scale"`
	Report *report `json:"report"`
}

// openState opens the file, or begins it. It refuses one that is about another subject.
func openState(path string, about subject) (*state, error) {
	s := &state{path: path, done: make(map[uint64]record), coverage: newCoverage()}
	data, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the state: %w", err)
	default:
		defer data.Close()
		if err := s.read(bufio.NewReader(data), about); err != nil {
			return nil, err
		}
	}
	if s.file, err = os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644); err != nil {
		return nil, fmt.Errorf("write the state: %w", err)
	}
	encoder := json.NewEncoder(s.file)
	err = encoder.Encode(about)
	for _, r := range s.done {
		err = errors.Join(err, encoder.Encode(r))
	}
	if err = errors.Join(err, os.Rename(path+".new", path)); err != nil {
		return nil, fmt.Errorf("write the state: %w", err)
	}
	return s, nil
}

func (s *state) read(r *bufio.Reader, about subject) error {
	decoder := json.NewDecoder(r)
	var was subject
	if err := decoder.Decode(&was); err != nil {
		return fmt.Errorf("read the state %s: %w: remove it, or name another file", s.path, err)
	}
	if was != about {
		return fmt.Errorf("the state %s is of other code or another profile: remove it, or name another file", s.path)
	}
	for {
		var r record
		if err := decoder.Decode(&r); err != nil {
			break // the end, or a line that was not written whole
		}
		s.done[r.Seed] = r
	}
	if profile, err := os.ReadFile(s.path + ".cover"); err == nil {
		if _, err := s.coverage.merge(profile); err != nil {
			return err
		}
	}
	return nil
}

// note keeps what a seed has shown.
func (s *state) note(r record, cover []byte) error {
	s.done[r.Seed] = r
	grown, err := s.coverage.merge(cover)
	if err == nil && grown {
		err = s.coverage.save(s.path + ".cover")
	}
	if err == nil {
		err = json.NewEncoder(s.file).Encode(r)
	}
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

func (s *state) close() error { return s.file.Close() }

// hashFile returns a short hash of what is in the file.
func hashFile(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}
