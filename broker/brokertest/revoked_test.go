package brokertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/client"
)

// A tokenFile is the one that all nodes read.
type tokenFile struct {
	*apiTest
	path string
}

// withTokens has the nodes let nobody in without a token of a file.
func (x *apiTest) withTokens() tokenFile {
	x.t.Helper()
	f := tokenFile{x, filepath.Join(x.t.TempDir(), "tokens.yaml")}
	x.callers = api.Callers{Tokens: func() access.Book {
		text, err := os.ReadFile(f.path)
		x.must(err)
		book, err := access.ReadBook(f.path, text)
		x.must(err)
		return book
	}}
	for _, n := range x.nodes {
		x.silence(n)
		x.serve(n)
	}
	return f
}

// create returns who asks any node with a token of their own.
func (f tokenFile) create(g access.Grant) *client.Admin {
	f.t.Helper()
	token, err := access.Create(f.path, g, time.Now())
	f.must(err)
	var addresses []string
	for _, n := range f.nodes {
		addresses = append(addresses, n.member.API)
	}
	admin, err := client.NewAdmin(addresses, client.AdminOptions{Token: client.StaticToken(token), Transport: f.transport})
	f.must(err)
	return admin
}

// What a token has started is the cluster's: it goes on when the token is revoked, also under another leader,
// until somebody else stops it. Who holds the token sees and stops nothing any more.
func TestBulk_goesOnWhenItsStartersTokenIsRevoked(t *testing.T) {
	testAPI(t, nil, []string{"orders"}, func(x *apiTest) {
		const messages, rate = 400, 20
		f := x.withTokens()
		root := f.create(access.Grant{Name: "root", Role: access.Admin})
		ann := f.create(access.Grant{Name: "ann", Role: access.Operator})
		defer root.Close()
		defer ann.Close()
		for i := range messages {
			_, err := ann.Schedule(x.t.Context(), client.ScheduleRequest{Topic: "orders.delay", ID: fmt.Sprint(i), DeliverAfter: "24h"})
			x.must(err)
		}
		begun, err := ann.StartOperation(x.t.Context(), client.OperationRequest{Verb: client.OperationCancel, Filter: client.Filter{Topic: "orders.delay"}, Rate: rate, Reason: "not sold any more"})
		x.must(err)
		x.pause(5 * time.Second)

		for _, e := range x.callers.Tokens().Entries() {
			if e.Name == "ann" {
				_, err := access.Revoke(f.path, e.ID)
				x.must(err)
			}
		}
		if _, err := ann.Operation(x.t.Context(), begun.ID); !errors.Is(err, client.ErrUnauthenticated) {
			x.t.Errorf("the revoked token is answered: %v", err)
		}
		if _, err := ann.StopOperation(x.t.Context(), begun.ID, "mine"); !errors.Is(err, client.ErrUnauthenticated) {
			x.t.Errorf("the revoked token stops: %v", err)
		}
		then, err := root.Operation(x.t.Context(), begun.ID)
		x.must(err)
		if then.State != client.OperationRunning || then.Done == 0 || then.Done > messages/2 || then.Who != "ann" {
			x.t.Fatalf("when the token is revoked the operation is %+v", then)
		}
		x.pause(3 * time.Second)
		old := x.leader()
		x.silence(old)
		old.kill()
		x.pause(5 * time.Second)
		x.leader()
		old.start()
		x.serve(old)

		ended, err := root.WaitOperation(x.t.Context(), begun.ID, nil)
		if err != nil || ended.State != client.OperationFinished || ended.Done != messages || ended.TooLate+ended.NotFound+ended.Failed != 0 || ended.Who != "ann" {
			x.t.Errorf("it has ended as %+v, %v", ended, err)
		}
		if count, err := root.Count(x.t.Context(), client.Filter{Topic: "orders.delay"}); err != nil || count.Count != 0 {
			x.t.Errorf("%+v wait still, %v", count, err)
		}
	})
}
