package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/cmd/carillon/internal/dev"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"carillon": main})
}

// The scripts run the program as a user does. Their own words:
//
//	exits CODE PROGRAM [ARGUMENT...]   run it and check the exit code
//	await PROGRAM [ARGUMENT...]        run it until it succeeds
//	await grep PATTERN PROGRAM ...     run it until its output matches
//	answers CODE HOST ADDRESS          ask the API at the address for its status, as HOST
//	shows PATTERN PATH FILE ADDRESS    ask the API for the path, with the token in the file, until the answer matches
//	proxy ADDRESS                          have a proxy take /carillon off, and pass the rest to ADDRESS; it is at $PROXY
//	issuer FILE...                     start an issuer at $ISSUER, and write a token of its into each file
//	flip FILE OFFSET                   flip a bit of this byte; the file's name may be a pattern
//	consume BROKER TOPIC VALUE         read the topic until the value comes, space around it aside
//
// $KAFKA, $API and $RAFT are ports, of which the two that follow are free as well;
// $KAFKA2, $API2 and $RAFT2 are the next ones.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			first := freePorts(9)
			for i, name := range []string{"KAFKA", "API", "RAFT"} {
				env.Setenv(name, strconv.Itoa(first+3*i))
				env.Setenv(name+"2", strconv.Itoa(first+3*i+1))
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "await": await, "answers": answers, "shows": shows, "consume": consume, "flip": flip, "issuer": startIssuer, "proxy": startProxy,
		},
	})
}

// patience bounds every wait for something that is expected to happen soon.
const patience = time.Minute

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGUMENT...]")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	pattern := ""
	if len(args) > 2 && args[0] == "grep" {
		pattern, args = args[1], args[2:]
	}
	if neg || len(args) < 1 {
		ts.Fatalf("usage: await [grep PATTERN] PROGRAM [ARGUMENT...]")
	}
	wanted, err := regexp.Compile("(?m)" + pattern) // as stdout takes it
	ts.Check(err)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for give := time.After(patience); ; {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil && wanted.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-give:
			ts.Fatalf("no success within %v, error %v", patience, err)
		case <-tick.C:
		}
	}
}

func answers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: answers CODE HOST ADDRESS")
	}
	request, err := http.NewRequest(http.MethodGet, "http://"+args[2]+"/v1/status", nil)
	ts.Check(err)
	request.Host = args[1]
	answer, err := http.DefaultTransport.RoundTrip(request)
	ts.Check(err)
	answer.Body.Close()
	if code := strconv.Itoa(answer.StatusCode); code != args[0] {
		ts.Fatalf("answered %s with %s, want %s", args[1], code, args[0])
	}
}

func startProxy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: proxy ADDRESS")
	}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: args[0]}) }}
	server := httptest.NewServer(http.StripPrefix("/carillon", pass))
	ts.Defer(server.Close)
	ts.Setenv("PROXY", server.URL+"/carillon")
}

func shows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: shows PATTERN PATH FILE ADDRESS")
	}
	wanted, err := regexp.Compile(args[0])
	ts.Check(err)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for give := time.After(patience); ; {
		request, err := http.NewRequest(http.MethodGet, "http://"+args[3]+args[1], nil)
		ts.Check(err)
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile(args[2])))
		answer, err := http.DefaultTransport.RoundTrip(request)
		ts.Check(err)
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		ts.Check(err)
		if wanted.Match(body) {
			return
		}
		select {
		case <-give:
			ts.Fatalf("the last answer within %v was %s", patience, body)
		case <-tick.C:
		}
	}
}

func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip FILE OFFSET")
	}
	paths, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	if len(paths) != 1 {
		ts.Fatalf("%s names %q, name one file", args[0], paths)
	}
	content, err := os.ReadFile(paths[0])
	ts.Check(err)
	content[at] ^= 4
	ts.Check(os.WriteFile(paths[0], content, 0o600))
}

func consume(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: consume BROKER TOPIC VALUE")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	kafka, err := kgo.NewClient(kgo.SeedBrokers(args[0]), kgo.ConsumeTopics(args[1]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ts.Check(err)
	defer kafka.Close()
	for {
		fetches := kafka.PollFetches(ctx)
		ts.Check(fetches.Err0())
		for _, r := range fetches.Records() {
			if strings.TrimSpace(string(r.Value)) == args[2] {
				return
			}
		}
	}
}

// freePorts returns the first of some ports in a row that nobody listens on. They lie below
// those that Linux gives to connections, of which one could take them before the program does.
func freePorts(count int) int {
	for {
		first := 10_000 + rand.IntN(20_000)
		var listeners []net.Listener
		for i := range count {
			if l, err := net.Listen("tcp", dev.Loopback(first+i)); err == nil {
				listeners = append(listeners, l)
			}
		}
		for _, l := range listeners {
			l.Close()
		}
		if len(listeners) == count {
			return first
		}
	}
}
