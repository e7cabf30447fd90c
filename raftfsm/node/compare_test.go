package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/raftfsm/member"
)

// misaddress has n2's API at the address in the configuration of these nodes,
// where nobody answers.
func (c *cluster) misaddress(address string, nodes ...string) {
	c.tune = func(cfg *Config) {
		if slices.Contains(nodes, cfg.NodeID) {
			cfg.Members = slices.Clone(cfg.Members)
			cfg.Members[1].API = address
		}
		cfg.AskMember = func(ctx context.Context, m member.Member) (member.Standing, error) {
			if m.API == address {
				return member.Standing{}, errors.New("connection refused")
			}
			return c.ask(ctx, m)
		}
	}
}

func TestBirth_refusesAPIAddressesThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.misaddress("typo.test:7401", "n1", "n3")
		c.open("n1", "n2", "n3")
		time.Sleep(time.Minute)
		for id, want := range map[string]string{
			"n1": `no answer from n2 at "typo.test:7401"`,
			"n2": `cluster.members[n2].api: "n2.test:7401", but n1 is configured with "typo.test:7401"`,
			"n3": `no answer from n2 at "typo.test:7401"`,
		} {
			if s := c.nodes[id].Status(); s.State != "unborn" || !strings.Contains(s.Waiting, want) || !strings.Contains(s.Waiting, "the same on all nodes") {
				t.Errorf("%s is %s: %s\nwant %s", id, s.State, s.Waiting, want)
			}
		}

		c.close("n1", "n3")
		c.tune = nil
		c.open("n1", "n3")
		c.leader()
		c.agree()
	})
}

// n2 hears from all that they are empty, and finds that nobody reaches it.
func TestBirth_withTheSameWrongAPIAddressInAllListsWaitsUntilItIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.misaddress("typo.test:7401", "n1", "n2", "n3")
		c.open("n1", "n2", "n3")
		time.Sleep(time.Minute)
		for id, want := range map[string]string{
			"n1": `no answer from n2 at "typo.test:7401": start it, or correct its api address`,
			"n2": `this node must answer at its own api address in cluster.members, "typo.test:7401"`,
			"n3": `no answer from n2 at "typo.test:7401": start it, or correct its api address`,
		} {
			if s := c.nodes[id].Status(); s.State != "unborn" || !strings.Contains(s.Waiting, want) {
				t.Errorf("%s is %s: %s", id, s.State, s.Waiting)
			}
		}

		c.close("n1", "n2", "n3")
		c.tune = nil
		c.open("n1", "n2", "n3")
		c.leader()
		c.agree()
	})
}

// The others founded it with n2 while n2 was away; meanwhile its list was changed.
func TestBirth_warnsOfAnAPIAddressThatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.foundWithout("n2")
		var log lines
		c.tune = func(cfg *Config) {
			cfg.Logger = log.logger()
			cfg.Members = slices.Clone(cfg.Members)
			cfg.Members[1].API = "moved.test:7401"
		}
		c.open("n2")
		c.eventually("place in the group", func() bool { return c.nodes["n2"].Status().Leader != "" })
		want := `configured otherwise than another member: cluster.members[n2].api: \"moved.test:7401\", but n1 is configured with \"n2.test:7401\"`
		if text := log.String(); strings.Count(text, want) != 1 {
			t.Errorf("it does not say %s once:\n%s", want, text)
		}
	})
}

func TestOpen_warnsOfAnAPIAddressThatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.open("n1", "n2", "n3")
		c.leader()
		c.close("n3")
		var log lines
		c.misaddress("typo.test:7401", "n3")
		tune := c.tune
		c.tune = func(cfg *Config) { tune(cfg); cfg.Logger = log.logger() }
		c.open("n3")
		c.eventually("all are in", func() bool { return c.nodes["n3"].Status().Leader != "" })
		for _, want := range []string{
			`cluster.members[n2].api: \"typo.test:7401\", but n1 is configured with \"n2.test:7401\"`,
			`member=n2 api=typo.test:7401 error="connection refused"`,
		} {
			if text := log.String(); !strings.Contains(text, want) {
				t.Errorf("%s is missing in:\n%s", want, text)
			}
		}

		c.close("n3")
		var quiet lines
		c.tune = func(cfg *Config) { cfg.Logger = quiet.logger() }
		c.open("n3")
		c.eventually("all are in", func() bool { return c.nodes["n3"].Status().Leader != "" })
		if text := quiet.String(); strings.Contains(text, "configured otherwise") {
			t.Errorf("with equal members it says:\n%s", text)
		}
	})
}
