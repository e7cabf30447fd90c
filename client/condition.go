package client

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// A Verb says what a record asks for.
type Verb uint8

// The verbs of an [Instruction].
const (
	VerbSchedule Verb = iota // deliver this record; a message that waits under its id gives way to it
	VerbCancel               // never deliver the message that waits under this id
)

// A Condition is what must hold of the message that waits under a record's id, for the record to
// take effect. One that is on its way to its target does not wait any more.
type Condition uint8

// The conditions of an [Instruction].
const (
	Always  Condition = iota
	Absent            // none waits
	Present           // one waits
	Exactly           // one waits, and it is Instruction.Seq of the cluster Instruction.Cluster
)

// Values of [HeaderIf], besides a seq, and of [HeaderCancel].
const (
	ifAbsent   = "absent"
	ifPresent  = "present"
	cancelTrue = "true"
)

// readCancel checks a record that cancels: it needs an id, and no time has a meaning on it.
func (t *instructionText) readCancel() error {
	value := string(t.cancel)
	if value != cancelTrue {
		return malformed(HeaderCancel, value, "is not true", "write "+cancelTrue+", or leave the header out to schedule the record")
	}
	if t.id == nil {
		return malformed(HeaderCancel, value, "needs "+HeaderID, "name the message to cancel with "+HeaderID)
	}
	for _, time := range []struct {
		name  string
		value []byte
	}{{HeaderAt, t.at}, {HeaderAfter, t.after}, {HeaderExpiresAt, t.expiresAt}, {HeaderExpiresAfter, t.expiresAfter}} {
		if time.value != nil {
			return malformed(HeaderCancel, value, "is given beside "+time.name,
				"leave out "+time.name+" to cancel the message, or "+HeaderCancel+" to schedule the record")
		}
	}
	return nil
}

// readCondition reads deliver-if, which is there, into the instruction.
func (t *instructionText) readCondition(in *Instruction) error {
	value := string(t.condition)
	if t.id == nil {
		return malformed(HeaderIf, value, "needs "+HeaderID, "name the message that it is about with "+HeaderID)
	}
	switch value {
	case ifAbsent:
		if in.Verb == VerbCancel {
			return malformed(HeaderIf, value, "is given beside "+HeaderCancel+", so nothing would ever be cancelled", "leave one of the two out")
		}
		in.If = Absent
		return nil
	case ifPresent:
		in.If = Present
		return nil
	}
	in.If = Exactly
	return readSeq(value, in)
}

// readSeq reads a seq, as a number or as all of delivered-seq: 32 hexadecimal digits, a slash and
// the number.
func readSeq(value string, in *Instruction) (err error) {
	number := strings.TrimPrefix(value, "+")
	if cluster, seq, whole := strings.Cut(value, "/"); whole {
		if id, err := hex.DecodeString(cluster); err != nil || len(id) != clusterIDBytes {
			return notACondition(value)
		}
		in.Cluster, number = strings.ToLower(cluster), seq
	}
	if digits(number) != len(number) {
		return notACondition(value)
	}
	if in.Seq, err = strconv.ParseUint(number, 10, 64); err != nil || in.Seq == 0 {
		return notACondition(value)
	}
	return nil
}

// clusterIDBytes is the length of a cluster's id, which stands in delivered-seq in hexadecimal.
const clusterIDBytes = 16

func notACondition(value string) error {
	return malformed(HeaderIf, value, "is not a condition",
		"use absent, present, or the seq of the message: a number from 1 on, or all of its "+HeaderDeliveredSeq)
}

// isOrigin reports whether the id has the form topic/partition/offset, by which messages without an
// id of their own are named.
func isOrigin(id string) bool {
	topic, numbers, _ := strings.Cut(id, "/")
	partition, offset, _ := strings.Cut(numbers, "/")
	return partition != "" && offset != "" && digits(partition) == len(partition) && digits(offset) == len(offset) && checkTopic(topic) == nil && topic != ""
}
