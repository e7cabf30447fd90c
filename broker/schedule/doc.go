// Package schedule decides when each message goes to the publisher, and has the log agree.
//
// One goroutine owns all of it. It follows the log (scheduler.go), keeps what is due next
// in a window (window.go), reads storage (read.go), claims time ahead (claims.go), and
// hands over what is due (handover.go has what passes between the two).
//
// What it knows of target topics is one value, with named states and the rules for their
// marks (target.go). The scheduler asks it and moves messages; nothing else sets a state or a
// mark. DESIGN.md has the invariants.
package schedule
