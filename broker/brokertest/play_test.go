package brokertest

import (
	"flag"
	"os"
	"testing"
)

var (
	scriptFile = flag.String("script", "../testdata/soon.txt", "TestPlay plays the script of this file")
	reportFile = flag.String("report", "", "TestPlay writes its report to this file, as JSON")
)

// TestPlay plays one script, for the simulator's command:
//
//	go test -run '^TestPlay$' ./broker/brokertest -script FILE -report FILE.json
func TestPlay(t *testing.T) {
	report := NewReport()
	if *reportFile != "" {
		defer func() {
			if err := report.write(*reportFile); err != nil {
				t.Error(err)
			}
		}()
	}
	file, err := os.Open(*scriptFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	script, err := parseScript(file)
	if err != nil {
		reporting{t, report}.Fatalf("script: %v", err)
	}
	script.playFor(t, report)
}
