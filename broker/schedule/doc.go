// Package schedule decides when each message goes to the publisher, and has the log agree.
//
// One goroutine owns all of it (scheduler.go). It follows the log, keeps what is due
// next in a window (window.go), claims time ahead (claims.go), and hands over what is
// due (fire.go). What it knows of target topics is one value with one rule
// (target.go, Scheduler.reach); those that cannot keep up wait in storage and are read
// by one sweep (sweep.go), those that are stuck are parked (park.go). DESIGN.md has
// the invariants.
package schedule
