package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// snippet returns the fenced block of the README whose first line begins with the given comment.
func snippet(t *testing.T, comment string) []byte {
	t.Helper()
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	// Every second piece between fences is a block: its language, a newline, its text.
	for i, piece := range strings.Split(string(readme), "\n```") {
		if _, text, _ := strings.Cut(piece, "\n"); i%2 == 1 && strings.HasPrefix(text, comment) {
			return []byte(text + "\n")
		}
	}
	t.Fatalf("README.md has no fenced block that begins with %q", comment)
	return nil
}

// pythonWithKafka returns an interpreter that has the client which the README names.
func pythonWithKafka(t *testing.T) string {
	t.Helper()
	dir := cache(t, "python-confluent-kafka-2.16.1")
	python := filepath.Join(dir, "bin", "python")
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err != nil {
		run(t, dir, nil, "python3", "-m", "venv", dir)
		run(t, dir, nil, python, "-m", "pip", "install", "--quiet", "confluent-kafka==2.16.1")
		write(t, complete, nil)
	}
	return python
}

// The README's snippets are run as they are printed, on the address that they name.
func TestReadmeSnippets_deliverAsPrinted(t *testing.T) {
	needs(t, "kcat", "python3", "javac", "mvn")
	const printed = "127.0.0.1:9092"
	needsAddr(t, printed)
	k := startKafka(t, printed)
	k.create(3, delayTopic)
	startCarillon(t, k.addrs(), dirs(t, 1)...)

	dir := t.TempDir()
	// These alone: others of Kafka's jars would let the client read what a user's cannot.
	jars := []string{"kafka-clients-4.3.1.jar", "slf4j-api-1.7.36.jar"}
	for _, jar := range jars {
		if err := os.Symlink(filepath.Join(kafkaJars(t), jar), filepath.Join(dir, jar)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []struct {
		comment, file string
		command       []string
	}{
		{"# kcat:", "schedule.sh", []string{"bash", "-e", "schedule.sh"}},
		{"# python:", "schedule.py", []string{pythonWithKafka(t), "schedule.py"}},
		{"// java:", "Schedule.java", []string{"java", "-cp", strings.Join(jars, ":"), "Schedule.java"}},
	} {
		t.Run(s.file, func(t *testing.T) {
			write(t, filepath.Join(dir, s.file), snippet(t, s.comment))
			out := run(t, dir, nil, append([]string{"timeout", "60"}, s.command...)...)
			t.Logf("%s printed\n%s", s.file, out)
			if !strings.Contains(out, "a parcel") || !strings.Contains(out, "delivered-for") {
				t.Errorf("printed no delivered parcel:\n%s", out)
			}
		})
	}
}
