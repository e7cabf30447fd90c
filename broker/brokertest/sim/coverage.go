package main

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A coverage says of each branch whether any run has reached it.
type coverage struct {
	statements map[string]int // by branch: "path:line.column,line.column"
	reached    map[string]bool
}

func newCoverage() *coverage {
	return &coverage{statements: make(map[string]int), reached: make(map[string]bool)}
}

// merge adds a profile as go test writes it, and reports whether it reached something new.
func (c *coverage) merge(profile []byte) (bool, error) {
	grown := false
	lines := bufio.NewScanner(bytes.NewReader(profile))
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "mode:") {
			continue
		}
		words := strings.Fields(lines.Text())
		if len(words) != 3 {
			return grown, fmt.Errorf("read coverage: line %q: want \"BRANCH STATEMENTS COUNT\"", lines.Text())
		}
		statements, err := strconv.Atoi(words[1])
		if err != nil {
			return grown, fmt.Errorf("read coverage: line %q: %w", lines.Text(), err)
		}
		c.statements[words[0]] = statements
		if words[2] != "0" && !c.reached[words[0]] {
			c.reached[words[0]] = true
			grown = true
		}
	}
	return grown, lines.Err()
}

// save writes the whole as one profile, which go tool cover reads as well.
func (c *coverage) save(path string) error {
	var b bytes.Buffer
	b.WriteString("mode: set\n")
	for _, branch := range slices.Sorted(maps.Keys(c.statements)) {
		count := 0
		if c.reached[branch] {
			count = 1
		}
		fmt.Fprintf(&b, "%s %d %d\n", branch, c.statements[branch], count)
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// missed returns the branches that no run has reached, in order of files and lines.
func (c *coverage) missed() []string {
	var all []string
	for branch := range c.statements {
		if !c.reached[branch] {
			all = append(all, branch)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		fileA, lineA := place(a)
		fileB, lineB := place(b)
		if fileA != fileB {
			return strings.Compare(fileA, fileB)
		}
		return lineA - lineB
	})
	return all
}

// place returns the file of a branch and the line where it begins.
func place(branch string) (file string, line int) {
	file, rest, _ := strings.Cut(branch, ":")
	first, _, _ := strings.Cut(rest, ".")
	line, _ = strconv.Atoi(first)
	return file, line
}

// shares returns by package how much of its statements was reached, in percent.
func (c *coverage) shares() map[string]float64 {
	all, reached := make(map[string]int), make(map[string]int)
	for branch, statements := range c.statements {
		pkg := branch[:strings.LastIndex(branch[:strings.Index(branch, ":")], "/")]
		all[pkg] += statements
		if c.reached[branch] {
			reached[pkg] += statements
		}
	}
	shares := make(map[string]float64)
	for pkg, n := range all {
		shares[pkg] = 100 * float64(reached[pkg]) / float64(max(n, 1))
	}
	return shares
}
