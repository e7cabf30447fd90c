package config

import (
	"path"
	"testing"
)

// All patterns of up to four of these characters, and all names of up to three.
func TestMatches_isPathMatch(t *testing.T) {
	topics := words("ab.-", 3)
	patterns := 0
	for _, pattern := range words(`ab.*?[]-\^`, 4) {
		if _, err := path.Match(pattern, ""); err != nil {
			continue // Validate refuses it
		}
		patterns++
		for _, topic := range topics {
			want, _ := path.Match(pattern, topic)
			if got := matches(pattern, topic); got != want {
				t.Errorf("%q and %q: %v", pattern, topic, got)
			}
		}
	}
	t.Logf("%d patterns, %d names", patterns, len(topics))
}

// words returns all of up to so many of the letters.
func words(letters string, most int) []string {
	all := []string{""}
	for from := 0; most > 0; most-- {
		longest := all[from:]
		from = len(all)
		for _, word := range longest {
			for _, letter := range letters {
				all = append(all, word+string(letter))
			}
		}
	}
	return all
}
