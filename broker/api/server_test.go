package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/broker/reload"
)

// Who was let in by an authority that is taken out since is not served for as long as it keeps asking.
func TestServe_endsConnectionsFromBeforeAChangeOfCertificates(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, err := certs.NewAuthority("ours", time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue([]string{"n1"}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, optional := range []bool{false, true} {
		paths := certs.Paths{Cert: write("n1.pem", pair.Cert), Key: write("n1.key", pair.Key), CA: write("ca.pem", ca.Cert)}
		keeper, err := reload.Open("api.tls", paths.Files(), paths.Read, quiet())
		if err != nil {
			t.Fatal(err)
		}
		peers := certs.NewPeers(certs.Options{Bundle: keeper, Optional: optional, Logger: quiet()})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 2)
		go func() { served <- keeper.Run(ctx) }()
		go func() { served <- Serve(ctx, peers.Over(l), handlerOf(&fakeNode{}), quiet()) }()

		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		answers := bufio.NewReader(conn)
		ask := func() *http.Response {
			t.Helper()
			if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			return answer
		}
		for range 2 {
			if answer := ask(); answer.StatusCode != http.StatusOK || answer.Close {
				t.Errorf("optional %v: %v before the change", optional, answer)
			}
		}
		replaced := keeper.Replaced()
		other, err := certs.NewAuthority("theirs", time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		write("ca.pem", other.Cert)
		<-replaced
		if answer := ask(); answer.StatusCode != http.StatusOK || !answer.Close {
			t.Errorf("optional %v: %v after it", optional, answer)
		}
		if _, err := answers.ReadByte(); err != io.EOF {
			t.Errorf("optional %v: it goes on after the answer: %v", optional, err)
		}
		conn.Close()
		stop()
		for range 2 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	}
}
