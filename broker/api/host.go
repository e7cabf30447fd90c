package api

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/client"
)

// OnLoopback returns the handler for a listener on loopback that authenticates
// nobody. It refuses requests whose host is neither loopback nor that of address,
// the node's own. Otherwise a web page of any name that is made to resolve to
// 127.0.0.1 (DNS rebinding) could use the API: for the browser they are one origin.
func OnLoopback(handler http.Handler, address string, log *slog.Logger) http.Handler {
	a := answers{log.With("component", "api")}
	own := hostOf(address)
	names := "localhost, 127.0.0.1 and [::1]"
	if !config.IsLoopback(own) {
		names = "localhost, 127.0.0.1, [::1] and " + own
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		if config.IsLoopback(host) || strings.EqualFold(host, own) {
			handler.ServeHTTP(w, r)
			return
		}
		a.complain(w, problem{Problem: client.Problem{Status: http.StatusForbidden, Code: client.CodeForbidden, Detail: fmt.Sprintf("Host is %q: nothing authenticates the callers, so this node answers to %s only;"+
			" use one of them, or say api.allow_unauthenticated: true where the network is trusted", r.Host, names)}})
	})
}

// hostOf returns the host of host:port, or of a host alone, without the dot that
// may end a full domain name.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	return strings.TrimSuffix(host, ".")
}
