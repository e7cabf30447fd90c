package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
	"github.com/carillonmq/carillon/broker/brokertest/mutants"
)

// A state is a file that has what the seeds played so far have shown, so that a run goes on where
// the last one was ended. It is lines of JSON: what was played, then one line a seed. A last line
// that was not written whole is left out. Beside it lies the coverage.
type state struct {
	lock     *os.File
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

// openState opens the file, or begins it, and keeps others from it until close. It refuses one that is about another subject,
// or damaged.
func openState(path string, about subject) (*state, error) {
	lock, err := mutants.Lock(path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &state{lock: lock, path: path, done: make(map[uint64]record), coverage: newCoverage()}
	if err = s.read(about); err == nil {
		err = s.begin(about)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// begin writes what is known into a new file, to which the rest is appended.
func (s *state) begin(about subject) error {
	var err error
	if s.file, err = os.OpenFile(s.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	encoder := json.NewEncoder(s.file)
	err = encoder.Encode(about)
	for _, r := range s.done {
		err = errors.Join(err, encoder.Encode(r))
	}
	if err = errors.Join(err, os.Rename(s.path+".new", s.path)); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

func (s *state) read(about subject) error {
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the state: %w", err)
	}
	lines := bytes.Split(data, []byte("\n"))
	for i, line := range lines[:len(lines)-1] { // behind the last end of a line is one that was not written whole, or nothing
		var was subject
		var r record
		if i == 0 {
			err = json.Unmarshal(line, &was)
		} else {
			err = json.Unmarshal(line, &r)
		}
		switch {
		case err != nil:
			return fmt.Errorf("read the state %s, line %d: %w: remove it, or name another file", s.path, i+1, err)
		case i > 0:
			s.done[r.Seed] = r
		case was != about:
			return fmt.Errorf("the state %s is of other code or another profile: remove it, or name another file", s.path)
		}
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

func (s *state) close() error {
	if s.file == nil { // it could not be opened
		return s.lock.Close()
	}
	return errors.Join(s.file.Close(), s.lock.Close())
}

// hashFile returns a short hash of what is in the file.
func hashFile(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}
