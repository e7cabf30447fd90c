package reach

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// WithRemedy wraps the error in what failed, and in which keys of the configuration to look at.
func WithRemedy(what string, err error) error {
	return fmt.Errorf("%s: %w; %s", what, err, remedy(err))
}

func remedy(err error) string {
	_, closed := errors.AsType[*kgo.ErrFirstReadEOF](err)
	switch {
	case errors.Is(err, errOtherKafka):
		return "check kafka.brokers"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "check kafka.sasl.username and kafka.sasl.password"
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return "check kafka.sasl.mechanism: Kafka does not offer it"
	case errors.Is(err, kerr.IllegalSaslState):
		return "check kafka.sasl.*: the listener in kafka.brokers takes no login"
	case isTLS(err):
		return "check kafka.tls.*"
	case closed: // before its first answer
		return "check kafka.tls.* and kafka.sasl.*: the listener in kafka.brokers may want TLS or a login, or none"
	}
	return "check kafka.brokers and that Kafka runs"
}

// isTLS tells whether the handshake failed: by us, by an answer that is no TLS, or by an alert of the broker's,
// whose type crypto/tls does not export.
func isTLS(err error) bool {
	_, distrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	alert, ok := errors.AsType[*net.OpError](err)
	return distrusted || plain || ok && alert.Op == "remote error"
}
