// Package query answers questions about what is pending: lists, single messages, counts. Answers are
// linearizable: each has what was acknowledged to anybody before the question was asked. DESIGN.md
// says how.
package query
