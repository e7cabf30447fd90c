package reach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// Once a broker is known to be silent nobody waits for it, until it answers again.
func TestSilentBrokerIsLeftAlone(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		network := kafkatest.NewFreezer(kafka.Network.DialContext)
		address := kafka.ListenAddrs()[0]
		hearing := newHearing(network.Dial, slog.New(slog.DiscardHandler))
		defer hearing.Close()
		ask := func() (time.Duration, error) { return askAnew(t, hearing, address) }
		for range 3 {
			if took, err := ask(); err != nil || took > 0 {
				t.Errorf("%v after %v", err, took)
			}
			network.Freeze(address)
			if took, err := ask(); err == nil || took > doubtAfter+leastSilence {
				t.Errorf("frozen: %v after %v", err, took)
			}
			before := network.Dialed(address)
			for range 600 {
				if took, err := ask(); !errors.Is(err, errSilent) || took > 0 {
					t.Fatalf("silent: %v after %v", err, took)
				}
				pass(100 * time.Millisecond)
			}
			if n := network.Dialed(address) - before; n > 12 { // for a sign of life, one each signTimeout
				t.Errorf("%d connections were opened to a silent broker in a minute", n)
			}
			network.Freeze()
			synctest.Wait()
		}
	})
}

// askAnew asks with a new client, and returns how long that took.
func askAnew(t *testing.T, hearing *Hearing, address string) (time.Duration, error) {
	t.Helper()
	start := time.Now()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.Dialer(hearing.dial))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.SeedBrokers()[0].Request(t.Context(), kmsg.NewPtrMetadataRequest())
	return time.Since(start), err
}

// A broker that is slow to connect to has longer, but only while it is.
func TestSlowSignIsForgotten(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		network := kafkatest.NewFreezer(kafka.Network.DialContext)
		address := kafka.ListenAddrs()[0]
		var delay atomic.Int64
		hearing := newHearing(func(ctx context.Context, kind, address string) (net.Conn, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Duration(delay.Load())):
				return network.Dial(ctx, kind, address)
			}
		}, slog.New(slog.DiscardHandler))
		defer hearing.Close()
		const slow = time.Second
		for range 3 {
			delay.Store(int64(slow))
			_, _ = askAnew(t, hearing, address)
			pass(10 * time.Second) // until it is known how slow it is
			before, asked := network.Dialed(address), 600
			for range asked {
				if took, err := askAnew(t, hearing, address); err != nil || took > slow {
					t.Fatalf("slow: %v after %v", err, took)
				}
				pass(2 * slow)
			}
			asked *= 2 // for a sign each time
			pass(time.Hour)
			if n := network.Dialed(address) - before; n > asked+70 {
				t.Errorf("%d connections were opened, want %d and one a minute in an hour", n, asked)
			}
			delay.Store(0)
			pass(2 * signMaxAge)
			before = network.Dialed(address)
			pass(time.Hour)
			if n := network.Dialed(address) - before; n != 0 {
				t.Errorf("%d connections were opened to a broker that is slow no more", n)
			}
			network.Freeze(address)
			if took, err := askAnew(t, hearing, address); err == nil || took > doubtAfter+leastSilence {
				t.Errorf("frozen: %v after %v", err, took)
			}
			network.Freeze()
			pass(signTimeout)
		}
	})
}

// What ends a silence is told apart: an answer, a broker that is down by now, or our own end, of which no line is logged.
func TestEndOfSilenceIsNamed(t *testing.T) {
	refused := func() (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	pipe := func(serve func(net.Conn)) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			ours, theirs := net.Pipe()
			go serve(theirs)
			return ours, nil
		}
	}
	hangs := pipe(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	closes := pipe(func(c net.Conn) { c.Close() })
	answers := pipe(func(c net.Conn) {
		_, _ = c.Read(make([]byte, 100))
		_, _ = c.Write(make([]byte, 4))
	})
	for what, test := range map[string]struct {
		then []func() (net.Conn, error) // for the signs after the silence, the last one for all others
		want []string
	}{
		"answers": {[]func() (net.Conn, error){answers}, []string{"answers again"}},
		"refuses": {[]func() (net.Conn, error){refused}, []string{"is down"}},
		"closes":  {[]func() (net.Conn, error){closes}, []string{"is down"}},
		"is back": {[]func() (net.Conn, error){refused, answers}, []string{"is down", "answers again"}},
		"our end": {nil, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			next := []func() (net.Conn, error){hangs}
			var logged strings.Builder
			hearing := newHearing(func(context.Context, string, string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				open := next[0]
				next = next[min(1, len(next)-1):]
				return open()
			}, slog.New(slog.NewTextHandler(&logged, nil)))
			conn, err := hearing.dial(t.Context(), "tcp", "kafka:9092")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute)) // waits for an answer, until it is cut off
			pass(time.Second)
			if len(test.then) > 0 {
				mu.Lock()
				next = test.then
				mu.Unlock()
				pass(2 * signTimeout)
				hearing.mu.Lock()
				if b := hearing.brokers["kafka:9092"]; b.silent || b.doubted {
					t.Errorf("%s: silent %v, doubted %v", what, b.silent, b.doubted)
				}
				hearing.mu.Unlock()
			}
			hearing.Close()
			lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
			if len(lines) != 1+len(test.want) || !strings.Contains(lines[0], "does not answer") {
				t.Fatalf("%s: logged %q, want the silence and %q", what, lines, test.want)
			}
			for i, want := range test.want {
				if !strings.Contains(lines[i+1], want) {
					t.Errorf("%s: logged %q, want %q", what, lines[i+1], want)
				}
			}
		})
	}
}

// That a machine is gone is told late, and told again each time.
func TestDeadMachineStaysSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const address = "kafka:9092"
		var dials, isBack atomic.Int64
		var logged lineBuffer
		hearing := newHearing(func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials.Add(1)
			if isBack.Load() > 0 {
				return nil, syscall.ECONNREFUSED
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(3 * time.Second):
				return nil, syscall.EHOSTUNREACH
			}
		}, slog.New(slog.NewTextHandler(&logged, nil)))
		defer hearing.Close()
		const asked = 3600
		late := 0
		for range asked {
			start := time.Now()
			_, err := hearing.dial(t.Context(), "tcp", address)
			if !errors.Is(err, errSilent) || time.Since(start) > 0 {
				late++
			}
			pass(990 * time.Millisecond) // at whatever moment of a sign
		}
		if late > 1 { // the first
			t.Errorf("of %d who connect %d were not refused at once", asked, late)
		}
		if n := dials.Load(); n > 730 {
			t.Errorf("%d connections were tried in an hour, want one each signTimeout", n)
		}
		if lines := logged.count("\n"); lines != 2 || logged.count("does not answer:") != 1 || logged.count(syscall.EHOSTUNREACH.Error()) != 1 {
			t.Errorf("logged %d lines in an hour, want the silence and what it comes from:\n%.500s", lines, logged.text.String())
		}
		isBack.Store(1)
		pass(signTimeout)
		if _, err := hearing.dial(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) || logged.count("is down") != 1 {
			t.Errorf("it is back, and refuses: %v:\n%.500s", err, logged.text.String())
		}
	})
}

// An address that is gone for good is asked no more once nobody connects to it, whenever somebody does so once more.
func TestAddressThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		dials := make(map[string]int)
		dialed := func(address string) int {
			mu.Lock()
			defer mu.Unlock()
			return dials[address]
		}
		hearing := newHearing(func(ctx context.Context, _, address string) (net.Conn, error) {
			mu.Lock()
			dials[address]++
			mu.Unlock()
			<-ctx.Done()
			return nil, ctx.Err()
		}, slog.New(slog.DiscardHandler))
		defer hearing.Close()
		dial := func(address string) time.Duration {
			start := time.Now()
			if _, err := hearing.dial(t.Context(), "tcp", address); !errors.Is(err, errSilent) {
				t.Errorf("%s: %v", address, err)
			}
			return time.Since(start)
		}
		const wanted, gone = "kafka:9092", "10.0.0.1:9092"
		dial(gone)
		dial(wanted)
		for range 24 * 15 { // a day
			pass(4 * time.Minute)
			if took := dial(wanted); took > 0 {
				t.Errorf("an address that is wanted was forgotten: refused after %v", took)
			}
		}
		most := int(forgetAfter/signTimeout) + 2
		if n := dialed(gone); n > most {
			t.Errorf("%d connections were tried in a day to an address that is gone, want %d at most", n, most)
		}
		const others = 120 // at whatever moment of the last signs
		for i := range others {
			go func() {
				address := fmt.Sprintf("10.0.1.%d:9092", i)
				dial(address)
				pass(forgetAfter - 2*signTimeout + time.Duration(i)*150*time.Millisecond)
				before := dialed(address)
				if took := dial(address); took != 0 && took != doubtAfter+leastSilence {
					t.Errorf("once more: refused after %v", took)
				}
				pass(time.Minute)
				if n := dialed(address) - before; n < 11 || n > 14 { // the dial, and signs
					t.Errorf("once more: %d connections were tried in a minute", n)
				}
				if took := dial(address); took != 0 {
					t.Errorf("once more, and silent: refused after %v", took)
				}
			}()
		}
		pass(3 * forgetAfter)
		hearing.mu.Lock()
		defer hearing.mu.Unlock()
		if n := len(hearing.brokers); n > 0 {
			t.Errorf("%d of %d are not forgotten", n, others+2)
		}
	})
}

// A broker that was down is known to be back, though no client connects to it.
func TestBrokerThatIsBackIsKnownToBe(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		var down atomic.Bool
		var dialed atomic.Int64
		hearing := newHearing(func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed.Add(1)
			if down.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return kafka.Network.DialContext(ctx, network, address)
		}, slog.New(slog.DiscardHandler))
		defer hearing.Close()
		addresses := kafka.ListenAddrs()[:1]
		down.Store(true)
		for range 3 { // each later failure says nothing new
			if _, err := hearing.dial(t.Context(), "tcp", addresses[0]); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("down: %v", err)
			}
			pass(signTimeout / 2)
		}
		pass(time.Minute)
		if unreached := hearing.Unreached(addresses); len(unreached) != 1 {
			t.Errorf("down: %v do not answer", unreached)
		}
		if n := dialed.Load(); n > 3+14 {
			t.Errorf("%d connections were tried in a minute and 7.5 s, 3 of them asked for", n)
		}
		down.Store(false)
		pass(signTimeout)
		synctest.Wait()
		if unreached := hearing.Unreached(addresses); len(unreached) != 0 {
			t.Errorf("back: %v do not answer", unreached)
		}
		before := dialed.Load()
		pass(10 * time.Minute)
		if n := dialed.Load() - before; n > 0 {
			t.Errorf("%d connections were tried to a broker that is back, and asked for nothing", n)
		}
	})
}

// pass lets virtual time go by.
func pass(d time.Duration) { time.Sleep(d) }

// A new client finds Kafka by those that answer, though none of them is configured, and keeps those that are.
func TestSeedsAreThoseThatAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := make(map[string]error)
		hearing := newHearing(func(_ context.Context, _, address string) (net.Conn, error) {
			if err := away[address]; err != nil {
				return nil, err
			}
			ours, theirs := net.Pipe()
			t.Cleanup(func() { theirs.Close() })
			return ours, nil
		}, slog.New(slog.DiscardHandler))
		defer hearing.Close()
		dial := func(address string) net.Conn {
			conn, _ := hearing.dial(t.Context(), "tcp", address)
			return conn
		}
		expect := func(when string, configured []string, want ...string) {
			t.Helper()
			if seeds := hearing.Seeds(configured); !slices.Equal(seeds, want) {
				t.Errorf("%s: %v, want %v", when, seeds, want)
			}
		}
		one, four := []string{"k1:9092"}, []string{"k1:9092", "k2:9092", "k3:9092", "k4:9092"}
		expect("nothing is known", one, "k1:9092")
		for _, address := range four {
			defer dial(address).Close()
		}
		expect("all answer", one, "k1:9092", "k2:9092", "k3:9092")
		expect("all answer", four, four...)

		away["k1:9092"] = syscall.ECONNREFUSED
		dial("k1:9092")
		expect("it is down", one, "k2:9092", "k3:9092", "k4:9092", "k1:9092")
		expect("one is down", four, "k2:9092", "k3:9092", "k4:9092", "k1:9092")
		left := dial("k5:9092")
		expect("another one came", four, "k2:9092", "k3:9092", "k4:9092", "k5:9092", "k1:9092")
		for range 2 {
			left.Close()
		}
		expect("and left", four, "k2:9092", "k3:9092", "k4:9092", "k1:9092")

		delete(away, "k1:9092")
		defer dial("k1:9092").Close()
		expect("it is back", one, "k1:9092", "k2:9092", "k3:9092")
		for _, address := range four {
			away[address] = syscall.ECONNREFUSED
			dial(address)
		}
		expect("all are down", four, four...)
	})
}
