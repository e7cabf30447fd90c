package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
)

func (d *door) revoke() {
	d.t.Helper()
	for _, e := range d.tokens().Entries() {
		if _, err := access.Revoke(d.path, e.ID); err != nil {
			d.t.Fatal(err)
		}
	}
}

// A stream whose token is revoked ends with the page that it is in, and says why, and where it was.
func TestStream_endsWhenItsTokenIsRevoked(t *testing.T) {
	for name, change := range map[string]struct {
		do   func(*door)
		code client.Code
	}{
		"revoked": {(*door).revoke, CodeTokenUnknown},
		"kept":    {func(*door) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDoor(t)
			token := d.create(access.Grant{Name: "anna", Role: access.Viewer})
			d.node.desk = query.New(longStore{messages: 3500, asked: new(int)}, leads{})
			request := httptest.NewRequest("GET", "/v1/messages", nil)
			request.Header.Set("Accept", ndjsonType)
			request.Header.Set("Authorization", "Bearer "+token)
			first := true
			answer := &streamRecorder{httptest.NewRecorder(), func() {
				if first {
					change.do(d)
					first = false
				}
			}}
			d.handler().ServeHTTP(answer, request)
			text := strings.TrimSuffix(answer.Body.String(), "\n")
			lines := strings.Split(text, "\n")
			var last lastLine
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
				t.Fatal(err)
			}
			switch {
			case change.code == "" && (len(lines) != 3501 || !last.End):
				t.Errorf("%d lines, the last is %+v", len(lines), last)
			case change.code != "" && (len(lines) != query.MostListed+1 || last.End || last.Cursor == "" || last.Problem == nil || last.Problem.Code != change.code):
				t.Errorf("%d lines, the last is %+v", len(lines), last)
			}
		})
	}
}

// Where nodes vouch for callers the leader does not see the token: the follower cuts the stream off.
func TestForward_cutsAStreamOffWhenItsTokenIsRevoked(t *testing.T) {
	gone := make(chan struct{})
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		w.Header().Set("Content-Type", ndjsonType)
		for r.Context().Err() == nil { // for ever
			_, _ = io.WriteString(w, `{"topic":"orders.delay"}`+"\n")
			if http.NewResponseController(w).Flush() != nil {
				return
			}
		}
	}))
	defer leader.Close()
	d := newDoor(t)
	d.node.status = following(leader.Listener.Addr().String()).status
	token := d.create(access.Grant{Name: "anna", Role: access.Viewer})
	follower := httptest.NewServer(NewHandler(d.node, prometheus.NewRegistry(), Callers{Tokens: d.tokens, Leader: Caller{Vouches: true}}, quiet()))
	defer follower.Close()
	request, err := http.NewRequest("GET", follower.URL+"/v1/messages", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", ndjsonType)
	request.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	defer answer.Body.Close()
	if _, err := io.ReadFull(answer.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	d.revoke()
	text, err := io.ReadAll(answer.Body)
	if err == nil || bytes.Contains(text, []byte("end")) {
		t.Errorf("it ended with %v", err)
	}
	<-gone
}
