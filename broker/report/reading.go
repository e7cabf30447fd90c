package report

import (
	"fmt"
	"strings"
)

// The states of a partition of a delay topic, as they stand in the status and in metrics.
const (
	StateRead        = "read"        // nothing keeps it from being read
	StateStart       = "start"       // its route does not say where to begin
	StateForbidden   = "forbidden"   // we may not read or describe it
	StateUnavailable = "unavailable" // Kafka does not tell of it for now
	StateDoubtful    = "doubtful"    // Kafka seems to have lost records, and is asked again
	StateFailing     = "failing"     // what Kafka gives cannot be read
	StateTransaction = "transaction" // Kafka gives nothing that follows a transaction which has not ended for minutes
)

// ReadingStates are all of them, in the order of the constants.
func ReadingStates() []string {
	return []string{StateRead, StateStart, StateForbidden, StateUnavailable, StateDoubtful, StateFailing, StateTransaction}
}

const (
	// mostUnread bounds what the status lists of what is not read, MostNamed what a problem names.
	mostUnread = 100
	MostNamed  = 10
)

// A Reading says how many partitions of delay topics are read, and which are not.
type Reading struct {
	Partitions map[string]int `json:"partitions"` // by state, all states
	Unread     []Unread       `json:"unread"`     // all states but read; 100 entries at most
}

// An Unread is what partitions of one topic have in common that are not read.
type Unread struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
	State      string  `json:"state"`
	Reason     string  `json:"reason"`
}

// Add puts the partition, which is the last one of its topic so far, to others of the same fate.
func (r *Reading) Add(topic string, partition int32, state string, why error) {
	entry := Unread{Topic: topic, Partitions: []int32{partition}, State: state, Reason: why.Error()}
	for i := len(r.Unread) - 1; i >= 0 && r.Unread[i].Topic == topic; i-- {
		if u := &r.Unread[i]; u.State == state && u.Reason == entry.Reason {
			u.Partitions = append(u.Partitions, partition)
			return
		}
	}
	if len(r.Unread) < mostUnread {
		r.Unread = append(r.Unread, entry)
	}
}

// Problem says it in one line; what waits for a start is a problem of its own.
func (r *Reading) Problem() string {
	var named []string
	for _, u := range r.Unread {
		if u.State == StateStart {
			continue
		}
		if len(named) == MostNamed {
			named = append(named, "and others")
			break
		}
		numbers := strings.Trim(strings.ReplaceAll(fmt.Sprint(u.Partitions), " ", ","), "[]")
		named = append(named, fmt.Sprintf("%s/%s (%s: %s)", u.Topic, numbers, u.State, u.Reason))
	}
	if len(named) == 0 {
		return ""
	}
	return "not read: " + strings.Join(named, ", ")
}
