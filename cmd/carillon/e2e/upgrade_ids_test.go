package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// What an upgrade finds waiting, by number: each under an id of its own, or several under one.
const (
	ownID      = 1_000_000 // ownID+i has the id-i
	ownIDs     = 300
	sharedID   = 2_000_000 // sharedID+i has the id shared-(i/3); i%3 == 2 is the newest
	sharedIDs  = 20        // ids
	replacedID = 3_000_000 // what takes the place of number i is replacedID+i
)

// tell produces one record and waits until Kafka has it.
func (u *upgrade) tell(number int, options ...client.Option) {
	u.t.Helper()
	r := &kgo.Record{Topic: delayTopic, Key: []byte("the same"), Value: []byte(strconv.Itoa(number))}
	err := client.Stamp(r, options...)
	if err == nil {
		err = u.producer.ProduceSync(u.t.Context(), r).FirstErr()
	}
	if err != nil {
		u.t.Fatal(err)
	}
}

// Messages with ids wait in a cluster whose program knows of no cancel. It gets this program under load,
// is taken back, gets it once more, and is raised. From then on what has waited all the time can be
// cancelled and replaced. Of several with one id that is the newest; the others are listed, and come.
func TestUpgrade_opensTheIDsOfWhatWaits(t *testing.T) {
	t.Parallel()
	needs(t, "java", "mvn")
	old := buildOld(t, lastBeforeIDs)
	u := newUpgrade(t, old)
	k, c := u.kafka, u.carillonCluster
	u.producer = k.client(kgo.ProducerLinger(0))
	due := time.Now().Add(100 * time.Second)
	for i := range ownIDs {
		u.tell(ownID+i, client.At(due), client.ID("id-"+strconv.Itoa(i)))
	}
	for i := range 3 * sharedIDs {
		u.tell(sharedID+i, client.At(due), client.ID("shared-"+strconv.Itoa(i/3)))
	}
	c.awaitPending(patience, ownIDs+3*sharedIDs)

	u.installAll(old, c.binary)
	u.installAll(c.binary, old)
	u.installAll(old, c.binary)
	u.tell(0, client.Cancel("id-2")) // which comes nevertheless
	await(t, patience, "the cancel is a dead letter", func() bool { n, known := k.written(deadLetterTopic); return known && n == 1 })
	if said, ok := u.raise(u.follower()); !ok {
		t.Fatalf("raise: %s", said)
	}
	for _, n := range c.nodes {
		await(t, patience, n.ID+" has come to the newest level", func() bool { return u.level(n) == uint32(storage.NewestLevel) })
		await(t, patience, n.ID+" tells of ids", func() bool { _, err := n.get("/v1/explain?topic=" + delayTopic + "&id=id-0"); return err == nil })
	}
	for i := 0; i < ownIDs; i += 3 {
		u.tell(0, client.Cancel("id-"+strconv.Itoa(i)))
		u.tell(replacedID+ownID+i+1, client.At(due.Add(time.Second)), client.ID("id-"+strconv.Itoa(i+1)))
	}
	for i := range sharedIDs / 2 {
		u.tell(0, client.Cancel("shared-"+strconv.Itoa(i)))
	}
	for i := sharedIDs / 2; i < sharedIDs; i++ {
		u.tell(replacedID+sharedID+3*i+2, client.At(due.Add(time.Second)), client.ID("shared-"+strconv.Itoa(i)))
	}
	c.awaitPending(patience, ownIDs+3*sharedIDs-ownIDs/3-sharedIDs/2)
	u.checkShared()
	t.Logf("raised and changed %v before what waited was due", time.Until(due))
	if time.Now().After(due) {
		t.Fatal("the upgrade took longer than messages waited: it proves nothing on so slow a machine")
	}

	want := make(map[int]map[string]int) // by number: how often each thing is told of its id
	for i := range ownIDs {
		switch i % 3 {
		case 0:
			want[ownID+i] = map[string]int{"cancelled": 1}
		case 1:
			want[ownID+i] = map[string]int{"replaced": 1, "delivered": 1}
		case 2:
			want[ownID+i] = map[string]int{"delivered": 1}
		}
	}
	coming := ownIDs - ownIDs/3 + 3*sharedIDs - sharedIDs/2
	u.ledger.settle(k, c, targetTopic, u.sent+coming)
	u.ledger.verify(t, u.sent, u.restarts, c.elections())
	leader := c.leader()
	for number, told := range want {
		got := c.endings(leader, "id-"+strconv.Itoa(number-ownID))
		if fmt.Sprint(got) != fmt.Sprint(told) {
			t.Errorf("id-%d is told to have ended so: %v, want %v", number-ownID, got, told)
		}
		u.expect(number, got["cancelled"]+got["replaced"] == 0)
		u.expect(replacedID+number, got["replaced"] == 1)
	}
	for i := range 3 * sharedIDs {
		u.expect(sharedID+i, i%3 != 2)
		u.expect(replacedID+sharedID+i, i%3 == 2 && i/3 >= sharedIDs/2)
	}
}

// expect holds that a message has come, or has not.
func (u *upgrade) expect(number int, came bool) {
	u.t.Helper()
	if u.ledger.has(number) != came {
		u.t.Errorf("message %d came: %v", number, !came)
	}
}

// checkShared holds that the messages which share their id with a newer one are in the list of what is
// pending, and in the log of a leader.
func (u *upgrade) checkShared() {
	u.t.Helper()
	var page client.Page
	body, err := u.leader().get("/v1/messages?limit=1000&prefix=shared-&topic=" + delayTopic)
	if err == nil {
		err = json.Unmarshal(body, &page)
	}
	if err != nil {
		u.t.Fatal(err)
	}
	if want := 2*sharedIDs + sharedIDs/2; len(page.Messages) != want {
		u.t.Errorf("%d messages are listed under shared ids, want %d", len(page.Messages), want)
	}
	logged := 0
	for _, n := range u.nodes {
		log, err := os.ReadFile(n.process.log)
		if err != nil {
			u.t.Fatal(err)
		}
		logged += strings.Count(string(log), "a message shares its id with a newer one")
	}
	if logged != 2*sharedIDs {
		u.t.Errorf("%d messages are logged that share their id with a newer one, want %d", logged, 2*sharedIDs)
	}
}
