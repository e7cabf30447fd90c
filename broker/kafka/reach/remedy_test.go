package reach

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// onLoopback runs a Kafka on loopback and returns how to reach it.
func onLoopback(t *testing.T, options ...kfake.Opt) Config {
	t.Helper()
	cluster, err := kfake.NewCluster(append(options, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return Config{Kafka: config.Kafka{Brokers: cluster.ListenAddrs()}, Logger: slog.New(slog.DiscardHandler)}
}

// askError is the error of a question, with its remedy.
func askError(t *testing.T, c Config) error {
	t.Helper()
	questions, end := ask(t, c)
	defer end()
	if _, err := askInTime(t, questions, forNothing); err != nil {
		return WithRemedy("ask", err)
	}
	return nil
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
		kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
			kafka.ControlKey(int16(test.key), func(kmsg.Request) (kmsg.Response, error, bool) {
				kafka.KeepControl()
				return test.answer, nil, true
			})
			c := configOf(t, kafka)
			c.Kafka.SASL = config.SASL{Mechanism: "plain", Username: "alice", Password: "secret"}
			if err := askError(t, c); err == nil || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("got %v, want ...%s", err, test.want)
			}
		}, kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "secret"))
	}
}

func TestConnectionThatFailsNamesItsKeys(t *testing.T) {
	const either = "; check kafka.tls.* and kafka.sasl.*: the listener in kafka.brokers may want TLS or a login, or none"
	files := kafkatest.NewCertificates(t)
	login, encrypted := onLoopback(t, kfake.EnableSASL()), onLoopback(t, kfake.TLS(files.Server))
	for name, test := range map[string]struct {
		brokers []string
		tls     config.TLS
		want    string
	}{
		"nobody there":          {[]string{"127.0.0.1:1"}, config.TLS{}, "; check kafka.brokers and that Kafka runs"},
		"no login":              {login.Kafka.Brokers, config.TLS{}, either},
		"no TLS":                {encrypted.Kafka.Brokers, config.TLS{}, either},
		"unknown authority":     {encrypted.Kafka.Brokers, config.TLS{Enabled: true, Cert: files.Cert, Key: files.Key}, "; check kafka.tls.*"},
		"no client certificate": {encrypted.Kafka.Brokers, config.TLS{Enabled: true, CA: files.CA}, "; check kafka.tls.*"},
	} {
		c := login
		c.Kafka = config.Kafka{Brokers: test.brokers, TLS: test.tls}
		if err := askError(t, c); err == nil || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%s: got %v, want ...%s", name, err, test.want)
		}
	}
}
