// Package order carries out what callers ask of the schedule without a record, while this node leads:
// schedule, cancel, change. It knows nothing of how they ask. DESIGN.md says how.
package order
