package play

import (
	"flag"
	"testing"

	"github.com/carillonmq/carillon/broker/brokertest"
)

var (
	scriptFile = flag.String("script", "../../testdata/soon.txt", "TestPlay plays the script of this file")
	reportFile = flag.String("report", "", "TestPlay writes its report to this file, as JSON")
)

// TestPlay plays one script, for the simulator's command:
//
//	go test -run '^TestPlay$' ./broker/brokertest/play -script FILE -report FILE.json
func TestPlay(t *testing.T) { brokertest.PlayFile(t, *scriptFile, *reportFile) }
