package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second // to read a request
	answerTimeout  = 30 * time.Second // from its header to the end of the answer
	dialTimeout    = 5 * time.Second  // to reach another node
	idleTimeout    = 2 * time.Minute
	drainTimeout   = 2 * time.Second // for requests that run when serving ends
	mostHeader     = 16 << 10        // bytes
)

type connKey struct{}

// tlsOf returns the state of TLS on the connection of the request, nil without it. Of a connection that may
// speak TLS or not, which the server does not know, the connection itself says so.
func tlsOf(r *http.Request) *tls.ConnectionState {
	if r.TLS != nil {
		return r.TLS
	}
	if c, ok := r.Context().Value(connKey{}).(interface{ TLS() *tls.ConnectionState }); ok {
		return c.TLS()
	}
	return nil
}

// renewing has each connection end with the answer after which what it was let in by has changed: certificates
// and authorities are looked at when it begins.
func renewing(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{})
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		if c, ok := conn.(interface{ Outdated() bool }); ok && c.Outdated() {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

// Serve answers requests on the listener until ctx ends, gives those that run two
// seconds to finish, and returns nil. It closes the listener.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           renewing(handler),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    mostHeader,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ErrorLog:          slog.NewLogLogger(log.With("component", "api").Handler(), slog.LevelDebug),
	}
	drained := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		drained <- server.Shutdown(ctx)
	})
	err := server.Serve(listener)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve api: %w", err)
	}
	if err := <-drained; err != nil {
		return errors.Join(fmt.Errorf("drain api: %w", err), server.Close())
	}
	return nil
}
