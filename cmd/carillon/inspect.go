package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

func inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Check what lies on a disk",
		Args:  cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE:  helpWithoutVerb,
	}
	cmd.AddCommand(inspectDataCommand())
	return cmd
}

func inspectDataCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "data DIR",
		Short: "Check the data directory of a node that does not run",
		Long: "Read a node.data_dir from end to end, check every checksum and what its parts say of each other, and\n" +
			"say what it holds. It changes nothing and needs no other node, but it refuses a directory whose node\n" +
			"runs: stop the node, or inspect an atomic snapshot of the volume. A copy that was made file by file while\n" +
			"the node ran lacks files, or has them of different moments: it is told as damaged, though the disk is sound.\n\n" +
			"The exit code is 0 when all is sound, 1 when something is damaged, 2 when it could not be checked.\n" +
			"Each damage is told with its file, the place in bytes where that is known, and what to do.",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := node.Inspect(args[0])
			if err != nil {
				return &uncheckedError{explainInspect(args[0], err)}
			}
			report := reportData(args[0], found)
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				err = out.Encode(report)
			} else {
				err = report.print(cmd.OutOrStdout())
			}
			if err != nil {
				return &uncheckedError{err}
			}
			if n := len(report.Damages); n > 0 {
				return fmt.Errorf("%s is damaged in %d places: %s%s", args[0], n, report.remedy, ofCopies)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

// ofCopies says that damage may be of the copy alone.
const ofCopies = "\nif this is a copy that was made while the node ran, its disk may be sound: stop the node, or inspect an atomic snapshot of the volume"

// An uncheckedError says why something could not be checked, which is not that it is damaged.
type uncheckedError struct{ error }

func (e *uncheckedError) Unwrap() error { return e.error }

func explainInspect(dir string, err error) error {
	switch {
	case errors.Is(err, storage.ErrInUse):
		return fmt.Errorf("%w: its node runs: stop the node, or inspect an atomic snapshot of the volume", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s is no data directory: name the node.data_dir of a node: %w", dir, err)
	}
	return err
}

// A dataReport is what `inspect data` tells, in the form of its JSON.
type dataReport struct {
	DataDir  string       `json:"data_dir"`
	Sound    bool         `json:"sound"`
	Node     *dataNode    `json:"node,omitempty"`
	Log      dataLog      `json:"log"`
	Schedule dataSchedule `json:"schedule"`
	LeftOver []string     `json:"left_over"` // by a crash; the next start removes them
	Damages  []dataDamage `json:"damages"`
	remedy   string
}

type dataNode struct {
	ID      string   `json:"id"`
	Cluster string   `json:"cluster"`
	RaftID  string   `json:"raft_id"` // empty: it has never been part of the cluster
	Members []string `json:"members"`
}

type dataLog struct {
	Kind       string        `json:"kind"`
	Term       uint64        `json:"term"`
	Vote       string        `json:"vote,omitempty"`
	VoteTerm   uint64        `json:"vote_term"`
	First      uint64        `json:"first"`
	Last       uint64        `json:"last"`
	FirstTerm  uint64        `json:"first_term"`
	LastTerm   uint64        `json:"last_term"`
	Replayed   uint64        `json:"replayed"` // entries that the next start applies
	Segments   []dataSegment `json:"segments"`
	Unfinished string        `json:"unfinished,omitempty"` // file that ends with an append which nobody was told of
}

type dataSegment struct {
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"`
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	Entries uint64 `json:"entries,omitempty"`
	IDs     uint64 `json:"ids,omitempty"`
	Alive   uint64 `json:"alive,omitempty"`
}

type dataSchedule struct {
	Index     uint64         `json:"index"` // of the log entry that all of it is as of
	Term      uint64         `json:"term"`
	ClusterID string         `json:"cluster_id"`
	Level     uint32         `json:"feature_level"`
	Time      int64          `json:"time"` // the leader's, epoch milliseconds
	Pending   uint64         `json:"pending"`
	NextDue   int64          `json:"next_due,omitempty"` // epoch milliseconds
	NextSeq   uint64         `json:"next_seq"`
	Claimed   int64          `json:"claimed_through"`
	Mark      storage.Ref    `json:"mark"`
	Holds     int            `json:"holds"`
	AliveSet  string         `json:"alive_set,omitempty"`
	Outcomes  uint64         `json:"outcomes,omitempty"`       // of messages with an id that have ended
	Since     int64          `json:"outcomes_since,omitempty"` // epoch milliseconds: what ended before may be forgotten
	Bulks     []dataBulk     `json:"operations,omitempty"`     // on many messages, the newest first
	Segments  []dataSegment  `json:"segments"`
	Positions []dataPosition `json:"positions"`
}

type dataBulk struct {
	ID       uint64 `json:"id"`
	State    string `json:"state"`
	What     string `json:"what"`
	Who      string `json:"who,omitempty"`
	Started  int64  `json:"started"`         // epoch milliseconds
	Ended    int64  `json:"ended,omitempty"` // likewise
	Done     uint64 `json:"done"`
	TooLate  uint64 `json:"too_late"`
	NotFound uint64 `json:"not_found"`
	Failed   uint64 `json:"failed"`
}

type dataPosition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Next      int64  `json:"next"` // -1: awaits routes[].start
}

type dataDamage struct {
	File    string `json:"file"`
	Offset  *int64 `json:"offset,omitempty"` // none: the file as a whole
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
}

func reportData(dir string, found *node.Inspection) dataReport {
	r := dataReport{
		DataDir: dir, Sound: len(found.Damages) == 0, LeftOver: append([]string{}, found.LeftOver...), Damages: []dataDamage{},
		remedy: restore("", 0),
	}
	if id := found.Identity; id != nil {
		r.Node = &dataNode{ID: id.NodeID, Cluster: id.ClusterName, RaftID: id.RaftID, Members: []string{}}
		for _, m := range id.Members {
			r.Node.Members = append(r.Node.Members, m.ID)
		}
		r.Log.Kind = id.Log
		r.remedy = restore(id.NodeID, len(id.Members))
	}
	r.addLog(found)
	r.addSchedule(found.Schedule)
	for _, d := range found.Damages {
		damage := dataDamage{File: d.File, Problem: firstLine(d.Err), Remedy: r.remedy}
		if d.Offset >= 0 {
			damage.Offset = &d.Offset
		}
		r.Damages = append(r.Damages, damage)
	}
	return r
}

// firstLine leaves out the stack that tells damage from a mistake in bbolt.
func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

func (r *dataReport) addLog(found *node.Inspection) {
	l := found.Log
	r.Log.Term, r.Log.Vote, r.Log.VoteTerm = l.Term, l.Vote, l.VoteTerm
	r.Log.First, r.Log.Last, r.Log.FirstTerm, r.Log.LastTerm = l.First, l.Last, l.FirstTerm, l.LastTerm
	r.Log.Replayed, r.Log.Unfinished, r.Log.Segments = found.Replayed, l.Unfinished, []dataSegment{}
	for _, s := range l.Segments {
		r.Log.Segments = append(r.Log.Segments, dataSegment{File: s.File, Bytes: s.Bytes, First: s.First, Last: s.Last})
	}
}

func (r *dataReport) addSchedule(s *storage.Inspection) {
	r.Schedule = dataSchedule{
		Index: s.Meta.Index, Term: s.Meta.Term, ClusterID: hex.EncodeToString(s.State.ClusterID[:]), Level: uint32(s.State.Level),
		Time: s.State.Time, Pending: s.State.Pending, NextDue: s.NextDue, NextSeq: s.State.NextSeq, Claimed: s.State.Claim.Through,
		Mark: s.State.Claim.Mark, Holds: s.Holds, AliveSet: s.Alive, Outcomes: s.Outcomes, Since: s.OutcomesSince, Segments: []dataSegment{}, Positions: []dataPosition{},
	}
	for _, g := range s.Segments {
		r.Schedule.Segments = append(r.Schedule.Segments, dataSegment{File: g.File, Bytes: g.Bytes, First: g.First, Last: g.Last, Entries: g.Entries, Alive: g.Alive, IDs: g.IDs})
	}
	for _, o := range s.Bulks {
		r.Schedule.Bulks = append(r.Schedule.Bulks, dataBulk{ID: o.ID, State: o.State.String(), What: o.What, Who: o.Who, Started: o.Started, Ended: o.Ended,
			Done: o.Done, TooLate: o.TooLate, NotFound: o.NotFound, Failed: o.Failed})
	}
	for _, p := range s.State.Positions {
		r.Schedule.Positions = append(r.Schedule.Positions, dataPosition{Topic: p.Topic, Partition: p.Partition, Next: p.Next})
	}
}

// print writes for people.
func (r *dataReport) print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	switch {
	case r.Node == nil:
		row("node", "unknown")
	case r.Node.RaftID == "":
		row("node", "%s of cluster %s, not part of it yet", r.Node.ID, r.Node.Cluster)
	default:
		row("node", "%s of cluster %s, Raft id %s, members %s", r.Node.ID, r.Node.Cluster, r.Node.RaftID, strings.Join(r.Node.Members, ", "))
	}
	l, s := &r.Log, &r.Schedule
	row("term", "%d, voted in %d for %s", l.Term, l.VoteTerm, orNone(l.Vote))
	row("log", "entries %d to %d of terms %d to %d, in %s", l.First, l.Last, l.FirstTerm, l.LastTerm, filesOf(l.Segments))
	if l.Unfinished != "" {
		row("", "%s ends with an append that a crash cut off and nobody was told of", l.Unfinished)
	}
	row("to be applied", "%d commands of the log", l.Replayed)
	row("schedule", "as of entry %d of term %d, cluster id %s, feature level %d", s.Index, s.Term, s.ClusterID, s.Level)
	row("pending", "%d", s.Pending)
	if s.NextDue != 0 {
		row("next due", "%s", time.UnixMilli(s.NextDue).UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	if s.Level >= uint32(storage.LevelThree) {
		row("outcomes", "%d of messages with an id that have ended", s.Outcomes)
	}
	for _, o := range s.Bulks {
		row("operation", "%d, %s: %d done, %d too late, %d not found, %d failed: %s", o.ID, o.State, o.Done, o.TooLate, o.NotFound, o.Failed, o.What)
	}
	row("segments", "%s", filesOf(s.Segments))
	row("claimed", "through %d, read again from due %d seq %d, %d targets held", s.Claimed, s.Mark.Due, s.Mark.Seq, s.Holds)
	row("positions", "%s", orNone(positionsOf(s.Positions)))
	row("left over", "%s", orNone(someOf(r.LeftOver)))
	for _, d := range r.Damages {
		place := d.File
		if d.Offset != nil {
			place += ", byte " + strconv.FormatInt(*d.Offset, 10)
		}
		row("damaged", "%s: %s", place, d.Problem)
	}
	if r.Sound {
		row("damaged", "nothing")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func filesOf(segments []dataSegment) string {
	var bytes int64
	var entries, alive, ids uint64
	for _, s := range segments {
		bytes, entries, alive, ids = bytes+s.Bytes, entries+s.Entries, alive+s.Alive, ids+s.IDs
	}
	text := fmt.Sprintf("%d files of %d bytes", len(segments), bytes)
	if entries > 0 {
		text += fmt.Sprintf(", %d of %d entries alive", alive, entries)
	}
	if ids > 0 {
		text += fmt.Sprintf(", %d rows of ids", ids)
	}
	return text
}

func positionsOf(positions []dataPosition) string {
	var all []string
	for _, p := range positions {
		all = append(all, fmt.Sprintf("%s/%d at %d", p.Topic, p.Partition, p.Next))
	}
	return someOf(all)
}
