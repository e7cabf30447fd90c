package main

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/client"
)

func TestTellChange_saysWhosePauseStands(t *testing.T) {
	p := client.Pause{Kind: client.PauseTopic, Name: "orders.delay", Who: "bob", Why: "another"}
	was := client.Pause{Kind: client.PauseTopic, Name: "orders.delay", Who: "ann\x1b[2J", Why: "stock \x1btaking", Since: 1_900_000_000_000}
	for want, change := range map[string]client.PauseChange{
		"topic orders.delay is paused\n":         {Changed: true},
		"topic orders.delay is paused already\n": {}, // by a node that does not tell
		"topic orders.delay is paused already, by ann\\x1b[2J since 2030-03-17T17:46:40Z: stock \\x1btaking\n" +
			"Nothing was changed: resume it first to give another reason.\n": {Was: &was},
	} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		if err := tellChange(cmd, p, change, "paused"); err != nil || out.String() != want {
			t.Errorf("%+v: %q, %v, want %q", change, out.String(), err, want)
		}
	}
}
