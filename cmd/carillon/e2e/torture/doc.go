// Package torture is the part of `make torture` that needs no process: it draws faults from a seed,
// keeps the ledger of what was produced and what came of it, and writes the report. It reads no
// clock and starts nothing; the tests of package e2e carry the faults out.
package torture
