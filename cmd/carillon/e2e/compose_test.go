package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The compose file is run as users get it, with every container's health check.
func TestCompose_deliversThoughTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	needs(t, "kcat")
	for _, printed := range []string{"127.0.0.1:9092", "127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"} {
		needsAddr(t, printed)
	}
	d := startDocker(t)
	d.standIns()
	d.compose("up", "--detach")
	start(t, "the containers", d.env, append(d.composeCommand(), "logs", "--follow", "--no-color")...)
	d.awaitHealthy("kafka", "n1", "n2", "n3")
	token := d.token("e2e", "viewer")
	c := &carillonCluster{t: t, nodes: []*carillonNode{
		{ID: "n1", API: "127.0.0.1:7401", token: token}, {ID: "n2", API: "127.0.0.1:7402", token: token}, {ID: "n3", API: "127.0.0.1:7403", token: token},
	}}
	if _, err := (&carillonNode{API: "127.0.0.1:7401"}).status(); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a token: %v", err)
	}

	const messages = 200
	kcat := func(stdin string, args ...string) string {
		t.Helper()
		cmd := command(t, ".", nil, append([]string{"timeout", "60", "kcat", "-b", "127.0.0.1:9092"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		return string(out)
	}
	kcat("", "-L", "-t", "orders") // lets Kafka create the target topic
	var lines strings.Builder
	for number := range messages {
		fmt.Fprintln(&lines, "parcel", number)
	}
	kcat(lines.String(), "-P", "-t", "orders.delay", "-H", "deliver-after=10s")
	c.awaitPending(10*time.Second, messages)

	leader := c.leader().ID
	d.docker("kill", d.container(leader))
	delivered := map[string]bool{}
	await(t, 2*patience, "all messages are delivered", func() bool {
		for line := range strings.Lines(kcat("", "-C", "-t", "orders", "-o", "beginning", "-e", "-q")) {
			delivered[line] = true
		}
		return len(delivered) == messages
	})
	t.Logf("killed the container of the leader %s; %d of %d messages were delivered", leader, len(delivered), messages)
	d.docker("start", d.container(leader))
	d.awaitHealthy(leader)
	d.compose("down", "--volumes")
}

// token makes one as the compose file says.
func (d *dockerDaemon) token(name, role string) string {
	d.t.Helper()
	for word := range strings.FieldsSeq(d.compose("run", "--rm", "-T", "token", "create", name, "--role", role)) {
		if strings.HasPrefix(word, "carillon_") {
			return word
		}
	}
	d.t.Fatal("no token was printed")
	return ""
}

// container returns the name that compose gives the only container of a service.
func (d *dockerDaemon) container(service string) string { return "e2e_" + service + "_1" }

func (d *dockerDaemon) awaitHealthy(services ...string) {
	d.t.Helper()
	for _, service := range services {
		await(d.t, 2*patience, "the container of "+service+" is healthy", func() bool {
			health := d.docker("inspect", "--format", "{{.State.Health.Status}}", d.container(service))
			return strings.TrimSpace(health) == "healthy"
		})
	}
}
