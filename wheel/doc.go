// Package wheel is a hierarchical timing wheel: a pure data structure that
// holds millions of timers and tells which are due.
package wheel
