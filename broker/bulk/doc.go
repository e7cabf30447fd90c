// Package bulk carries out operations on many messages: cancel, change and deliver now whatever a filter
// means, and replay dead letters. What is asked is replicated (package storage/bulk), and a Runner of whoever leads walks over the
// schedule and has the log decide about each message, step by step. DESIGN.md says what is promised.
package bulk
