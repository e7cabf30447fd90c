// Package ledger judges what happened to a cluster. A Ledger holds the facts of one run: what was
// produced, what consumers saw, what still waits, which faults there were and when. Judge holds
// them against the promises of docs/guarantees.md and returns what contradicts them. It is pure: who
// gathers the facts, from a simulated cluster or a real one, is not its business, and what it has
// to find is tested with ledgers that are written down (*_test.go).
//
// Two rules keep the checks general. A fault excuses what the guarantees say that it may cause,
// to whom it befell and while it lasts and is recovered from (faults.go), and nothing else. And a
// check asks about a promise, never about a way to break it.
package ledger
