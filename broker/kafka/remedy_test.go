package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deliver"
)

func discoverError(t *testing.T, c Config) error {
	t.Helper()
	source, err := NewSource(c, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	_, _, err = source.Topics(t.Context(), nil)
	return err
}

func TestLoginThatKafkaRefusesNamesItsKeys(t *testing.T) {
	handshake := func(err *kerr.Error) kmsg.Response {
		return &kmsg.SASLHandshakeResponse{Version: 1, ErrorCode: err.Code}
	}
	for _, test := range []struct {
		key    kmsg.Key
		answer kmsg.Response
		want   string
	}{
		{kmsg.SASLHandshake, handshake(kerr.IllegalSaslState), "; check kafka.sasl.*: the listener in kafka.brokers takes no login"},
		{kmsg.SASLHandshake, handshake(kerr.UnsupportedSaslMechanism), "; check kafka.sasl.mechanism: Kafka does not offer it"},
		{kmsg.SASLAuthenticate, &kmsg.SASLAuthenticateResponse{Version: 2, ErrorCode: kerr.SaslAuthenticationFailed.Code},
			"; check kafka.sasl.username and kafka.sasl.password"},
	} {
		inBubble(t, func(t *testing.T, kafka bubble) {
			kafka.ControlKey(int16(test.key), func(kmsg.Request) (kmsg.Response, error, bool) {
				kafka.KeepControl()
				return test.answer, nil, true
			})
			c := kafka.config()
			c.Kafka.SASL = config.SASL{Mechanism: "plain", Username: "alice", Password: "secret"}
			if err := discoverError(t, c); err == nil || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("got %v, want ...%s", err, test.want)
			}
		}, kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "secret"))
	}
}

func TestConnectionThatFailsNamesItsKeys(t *testing.T) {
	const either = "; check kafka.tls.* and kafka.sasl.*: the listener in kafka.brokers may want TLS or a login, or none"
	files := newCertificates(t)
	login, encrypted := onLoopback(t, kfake.EnableSASL()), onLoopback(t, kfake.TLS(files.server))
	for name, test := range map[string]struct {
		brokers []string
		tls     config.TLS
		want    string
	}{
		"nobody there":          {[]string{"127.0.0.1:1"}, config.TLS{}, "; check kafka.brokers and that Kafka runs"},
		"no login":              {login.Kafka.Brokers, config.TLS{}, either},
		"no TLS":                {encrypted.Kafka.Brokers, config.TLS{}, either},
		"unknown authority":     {encrypted.Kafka.Brokers, config.TLS{Enabled: true, Cert: files.cert, Key: files.key}, "; check kafka.tls.*"},
		"no client certificate": {encrypted.Kafka.Brokers, config.TLS{Enabled: true, CA: files.ca}, "; check kafka.tls.*"},
	} {
		c := login
		c.Kafka = config.Kafka{Brokers: test.brokers, TLS: test.tls}
		if err := discoverError(t, c); err == nil || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%s: got %v, want ...%s", name, err, test.want)
		}
	}
}

// An answer for each of a hundred thousand missing topics is kept small: its text is written when it is read.
func TestClassify_saysWhatItStandsFor(t *testing.T) {
	cause := fmt.Errorf("produce: %w", kerr.UnknownTopicOrPartition)
	err := classify("orders", cause)
	if want := fmt.Sprintf("topic %q: %v: %v", "orders", deliver.ErrTargetMissing, cause); err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if !errors.Is(err, deliver.ErrTargetMissing) || !errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, deliver.ErrTargetForbidden) {
		t.Errorf("%v is not what it stands for", err)
	}
	if n := testing.AllocsPerRun(100, func() { err = classify("orders", cause) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
