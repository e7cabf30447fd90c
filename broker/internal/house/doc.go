// Package house holds the tests that keep the code in the shape that
// CONTRIBUTING.md describes: who may import whom, how long a file may get, and
// which calls have no place where. It has no code of its own.
package house
