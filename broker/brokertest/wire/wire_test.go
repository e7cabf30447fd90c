package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs test with both ends of a connection.
func inBubble(t *testing.T, test func(t *testing.T, dialed, accepted net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := NewNetwork()
		listener, err := network.Listen("tcp", "127.0.0.1:9092")
		must(t, err)
		defer listener.Close()
		accepted := make(chan net.Conn)
		go func() {
			c, err := listener.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		dialed, err := network.DialContext(t.Context(), "tcp", "127.0.0.1:9092")
		must(t, err)
		test(t, dialed, <-accepted)
	})
}

func TestConn_writesBeforeAnybodyReads(t *testing.T) {
	inBubble(t, func(t *testing.T, dialed, accepted net.Conn) {
		for _, text := range []string{"one", "two"} {
			_, err := dialed.Write([]byte(text))
			must(t, err)
		}
		got := make([]byte, 6)
		_, err := io.ReadFull(accepted, got)
		must(t, err)
		if string(got) != "onetwo" {
			t.Errorf("read %q", got)
		}
	})
}

func TestConn_letsTheWriterWaitWhenTooMuchIsOnItsWay(t *testing.T) {
	inBubble(t, func(t *testing.T, dialed, accepted net.Conn) {
		sent := make([]byte, 3*most+7)
		for i := range sent {
			sent[i] = byte(i * 31)
		}
		wrote := make(chan error, 1)
		go func() {
			_, err := dialed.Write(sent)
			wrote <- err
		}()
		synctest.Wait()
		if len(wrote) > 0 {
			t.Error("all was written, though nobody has read")
		}
		got := make([]byte, len(sent))
		_, err := io.ReadFull(accepted, got)
		must(t, err)
		must(t, <-wrote)
		if !slices.Equal(got, sent) {
			t.Error("what was read is not what was written")
		}
	})
}

func TestConn_endsAfterWhatWasOnItsWay(t *testing.T) {
	inBubble(t, func(t *testing.T, dialed, accepted net.Conn) {
		_, err := dialed.Write([]byte("bye"))
		must(t, err)
		must(t, dialed.Close())
		got, err := io.ReadAll(accepted)
		must(t, err)
		if string(got) != "bye" {
			t.Errorf("read %q", got)
		}
		if _, err := accepted.Write([]byte("who?")); err == nil {
			t.Error("written to who has gone")
		}
		if _, err := dialed.Write([]byte("me")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("written to what is closed: %v", err)
		}
	})
}

func TestConn_wakesWhoWaitsWhenItIsClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, dialed, accepted net.Conn) {
		read, wrote := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := dialed.Read(make([]byte, 1))
			read <- err
		}()
		go func() {
			_, err := dialed.Write(make([]byte, 2*most))
			wrote <- err
		}()
		synctest.Wait()
		must(t, dialed.Close())
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading ended with %v", err)
		}
		if err := <-wrote; !errors.Is(err, net.ErrClosed) {
			t.Errorf("writing ended with %v", err)
		}
	})
}

func TestConn_givesUpAtItsDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, dialed, _ net.Conn) {
		begin := time.Now()
		must(t, dialed.SetDeadline(begin.Add(time.Minute)))
		go func() {
			time.Sleep(time.Second)
			_ = dialed.SetDeadline(begin.Add(3 * time.Second)) // earlier, for one who waits already
		}()
		if _, err := dialed.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 3*time.Second {
			t.Errorf("reading ended after %v with %v", time.Since(begin), err)
		}
		must(t, dialed.SetWriteDeadline(begin.Add(5*time.Second)))
		if _, err := dialed.Write(make([]byte, 2*most)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 5*time.Second {
			t.Errorf("writing ended after %v with %v", time.Since(begin), err)
		}
		must(t, dialed.SetDeadline(time.Time{}))
	})
}

func TestNetwork_refusesWhereNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := NewNetwork()
		if _, err := network.DialContext(t.Context(), "tcp", "127.0.0.1:1"); err == nil {
			t.Error("dialed where nobody listens")
		}
		listener, err := network.Listen("tcp", "127.0.0.1:1")
		must(t, err)
		if _, err := network.Listen("tcp", "127.0.0.1:1"); err == nil {
			t.Error("two listen at one port")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := network.DialContext(short, "tcp", "127.0.0.1:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialing who accepts nothing ended with %v", err)
		}
		must(t, listener.Close())
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepting ended with %v", err)
		}
		_, err = network.Listen("tcp", "127.0.0.1:1")
		must(t, err)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Who asks again and again without a pause does not stop the time.
func TestConn_takesTimeInTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, dialed, accepted net.Conn) {
		begun := time.Now()
		for range 10 * mostAtOnce {
			_, err := dialed.Write([]byte{1})
			must(t, err)
			_, err = io.ReadFull(accepted, make([]byte, 1))
			must(t, err)
		}
		if took := time.Since(begun); took < 9*time.Millisecond || took > 10*time.Millisecond {
			t.Errorf("all of it took %v", took)
		}
	})
}
