// Package kfiles shortens what a kfake has written of a topic. kfake cannot do that to a log that it has open, so it
// has to have ended; one that is started with the files has the topic without its newest records, in another epoch.
package kfiles

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Shorten takes so many of the newest records from each partition of a topic, and all that were written in one batch with
// them. The directory is the one that kfake was told (kfake.DataDir). It returns the offsets with which the partitions end
// now.
func Shorten(dir, topic string, by int64) (ends map[int32]int64, err error) {
	ends = make(map[int32]int64)
	dirs, err := filepath.Glob(filepath.Join(dir, "partitions", "*"))
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	for _, dir := range dirs {
		s, err := readSummary(dir)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(dir)
		number, isOf := strings.CutPrefix(name, topic+"-")
		if partition, err := strconv.ParseInt(number, 10, 32); isOf && err == nil {
			if err := s.shorten(by); err != nil {
				return nil, fmt.Errorf("shorten %s: %w", name, err)
			}
			ends[int32(partition)] = s.End
		}
		if err := s.write(); err != nil {
			return nil, err
		}
	}
	return ends, forgetSessions(filepath.Join(dir, "session_state.json"))
}

// forgetSessions takes fetch sessions out of what kfake knows of its clients when it ends. Kafka keeps none, and kfake
// panics at one that asks by a topic id that there is no more.
func forgetSessions(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var all map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err == nil {
		delete(all, "fetchSessions")
		text, err = json.Marshal(all)
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("forget fetch sessions: %w", err)
	}
	return nil
}

// A summary is what kfake writes of a partition when it ends. With what is not looked at here, and is left as it is.
//
// Beside it lie the batches as Kafka has them on the wire, in files that are named by their first offset:
//
//	0.dat, 0.idx, 5000.dat, 5000.idx, snapshot.json
//
// Where there are no batches it has no files, and kfake does not read the summary then: it would forget the end and the epoch.
type summary struct {
	dir string
	all map[string]json.RawMessage

	End      int64     `json:"high_watermark"`
	Stable   int64     `json:"last_stable_offset"`
	Epoch    int32     `json:"epoch"`
	Aborted  []aborted `json:"aborted_txns"`
	Segments []segment `json:"segments"`
}

type aborted struct {
	Producer int64 `json:"producer_id"`
	First    int64 `json:"first_offset"`
	Last     int64 `json:"last_offset"`
}

type segment struct {
	Base     int64 `json:"base_offset"`
	Size     int64 `json:"size"`
	MinEpoch int32 `json:"min_epoch,omitempty"`
	MaxEpoch int32 `json:"max_epoch,omitempty"`
}

func readSummary(dir string) (summary, error) {
	s := summary{dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, "snapshot.json"))
	if err == nil {
		err = errors.Join(json.Unmarshal(text, &s.all), json.Unmarshal(text, &s))
	}
	if err != nil {
		return s, fmt.Errorf("read what kfake says of a partition: %w", err)
	}
	return s, nil
}

// write writes the summary, and has a file be there.
func (s *summary) write() error {
	files, err := filepath.Glob(filepath.Join(s.dir, "*.dat"))
	if err != nil {
		return fmt.Errorf("list what kfake has of a partition: %w", err)
	}
	if len(s.Segments) == 0 {
		s.Segments = []segment{{Base: s.End}}
		files = append(files, s.file(s.Segments[0]))
		err = os.WriteFile(s.file(s.Segments[0]), nil, 0o644)
	}
	for _, file := range files {
		if !slices.ContainsFunc(s.Segments, func(of segment) bool { return s.file(of) == file }) {
			err = errors.Join(err, os.Remove(file), os.Remove(strings.TrimSuffix(file, ".dat")+".idx"))
		}
	}
	for name, value := range map[string]any{
		"high_watermark": s.End, "last_stable_offset": s.Stable, "epoch": s.Epoch, "aborted_txns": s.Aborted, "segments": s.Segments,
	} {
		encoded, failed := json.Marshal(value)
		s.all[name], err = encoded, errors.Join(err, failed)
	}
	text, failed := json.Marshal(s.all)
	if err := errors.Join(err, failed, os.WriteFile(filepath.Join(s.dir, "snapshot.json"), text, 0o644)); err != nil {
		return fmt.Errorf("write what kfake is to know of a partition: %w", err)
	}
	return nil
}

func (s *summary) file(of segment) string {
	return filepath.Join(s.dir, fmt.Sprintf("%d.dat", of.Base))
}

// shorten has the partition lack so many of the newest records, in another epoch.
func (s *summary) shorten(by int64) error {
	offset := s.End - by
	s.Epoch++
	for i, of := range slices.Backward(s.Segments) {
		batches, err := os.ReadFile(s.file(of))
		if err != nil {
			return fmt.Errorf("read what is to be cut: %w", err)
		}
		s.Segments[i].Size, s.End = keep(batches, offset, s.End)
		if s.Segments[i].Size > 0 {
			if err := os.Truncate(s.file(of), s.Segments[i].Size); err != nil {
				return fmt.Errorf("cut: %w", err)
			}
			break
		}
		s.Segments = s.Segments[:i]
	}
	s.Stable = s.End
	s.Aborted = slices.DeleteFunc(s.Aborted, func(a aborted) bool { return a.First >= s.End })
	return nil
}

// keep returns how many bytes of the batches lie before the one that has the offset, and where that one begins; all of
// them, and the end, if none has.
//
//	first offset 8 | length of what follows 4 | ... | last offset, from the first, 4 at 23 | ...
func keep(batches []byte, offset, end int64) (size, from int64) {
	for rest := batches; len(rest) > 0; {
		first, length := int64(binary.BigEndian.Uint64(rest)), 12+int64(binary.BigEndian.Uint32(rest[8:]))
		if first+int64(binary.BigEndian.Uint32(rest[23:])) >= offset {
			return size, first
		}
		size, rest = size+length, rest[length:]
	}
	return size, end
}
