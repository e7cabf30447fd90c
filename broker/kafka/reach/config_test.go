package reach

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

func TestUnusableSettingsNameFieldValueAndRemedy(t *testing.T) {
	files := kafkatest.NewCertificates(t)
	open := kafkatest.NewCertificates(t).Key
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		kafka config.Kafka
		want  []string
	}{
		"missing authority": {config.Kafka{TLS: config.TLS{Enabled: true, CA: "nowhere.pem"}},
			[]string{"kafka.tls.ca", "nowhere.pem", "name a PEM file"}},
		"authority without certificate": {config.Kafka{TLS: config.TLS{Enabled: true, CA: files.Key}},
			[]string{"kafka.tls.ca", files.Key, "no certificate", "name a PEM file"}},
		"missing key": {config.Kafka{TLS: config.TLS{Enabled: true, Cert: files.Cert, Key: "nowhere.pem"}},
			[]string{"kafka.tls.key", "nowhere.pem", "no such file"}},
		"a key of another certificate": {config.Kafka{TLS: config.TLS{Enabled: true, Cert: files.Cert, Key: kafkatest.NewCertificates(t).Key}},
			[]string{"kafka.tls.cert", files.Cert, "kafka.tls.key", "belong together"}},
		"a key that others may read": {config.Kafka{TLS: config.TLS{Enabled: true, Cert: files.Cert, Key: open}},
			[]string{"kafka.tls.key", open, "has mode 0644, so that others may read or change it", "run chmod o-rwx,g-w"}},
		"unknown mechanism": {config.Kafka{SASL: config.SASL{Mechanism: "kerberos"}},
			[]string{"kafka.sasl.mechanism", "kerberos", "scram-512"}},
		"unknown compression": {config.Kafka{Compression: "brotli"},
			[]string{"kafka.compression", "brotli", "none, gzip, snappy, lz4 or zstd"}},
	} {
		c := Config{Kafka: tt.kafka, Logger: slog.New(slog.DiscardHandler)}
		_, optionsErr := c.Options()
		_, _, heardErr := c.Heard(c.Logger)
		for _, err := range []error{optionsErr, heardErr} {
			if err == nil {
				t.Errorf("%s was accepted", name)
				continue
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: message %q does not say %q", name, err, part)
				}
			}
		}
	}
}

// Of a renewed pair one file is written first, and Kafka is dialled at any moment.
func TestClientCertificate_isTheLastThatCouldBeUsed(t *testing.T) {
	before, after := kafkatest.NewCertificates(t), kafkatest.NewCertificates(t)
	var log bytes.Buffer
	security, err := newSecurity(config.TLS{Cert: before.Cert, Key: before.Key}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	certificate := func() string {
		t.Helper()
		shown, err := security.config("kafka").GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(shown.Certificate[0])
	}
	replace := func(path, by string) {
		t.Helper()
		text, err := os.ReadFile(by)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	warned := func(times int, last string) {
		t.Helper()
		if got := log.String(); strings.Count(got, "level=WARN") != times || !strings.Contains(got, last) {
			t.Errorf("want %d warnings and %q, logged:\n%s", times, last, got)
		}
	}
	first := certificate()
	replace(before.Cert, after.Cert)
	for range 2 {
		if certificate() != first {
			t.Error("another is shown with half a pair")
		}
	}
	warned(1, "name PEM files that belong together")
	if err := os.Chmod(before.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if certificate() != first {
		t.Error("another is shown with a key that others may read")
	}
	warned(2, "run chmod o-rwx,g-w")
	if err := os.Chmod(before.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	replace(before.Key, after.Key)
	second := certificate()
	if second == first {
		t.Error("the renewed pair is not shown")
	}
	if err := os.Remove(before.Key); err != nil {
		t.Fatal(err)
	}
	if certificate() != second {
		t.Error("another than the last is shown without a key")
	}
	warned(3, "no such file")
}

// Whoever renews the brokers' authority writes both first, and expects that nodes which run take the new one.
func TestAuthorities_areReadAgainAtEveryConnection(t *testing.T) {
	before, after := kafkatest.NewCertificates(t), kafkatest.NewCertificates(t)
	var log bytes.Buffer
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write := func(files ...string) {
		t.Helper()
		var all []byte
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text...)
		}
		if err := os.WriteFile(ca, all, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := func(files ...string) *x509.CertPool {
		t.Helper()
		write(files...)
		roots, err := readRoots(ca)
		if err != nil {
			t.Fatal(err)
		}
		return roots
	}
	both, old := pool(before.CA, after.CA), pool(before.CA)
	security, err := newSecurity(config.TLS{CA: ca}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if !security.config("kafka").RootCAs.Equal(old) {
		t.Error("other authorities than those of the file")
	}
	write(before.CA, after.CA)
	whole, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca, whole[:len(whole)-40], 0o600); err != nil {
		t.Fatal(err)
	}
	if !security.config("kafka").RootCAs.Equal(old) || !strings.Contains(log.String(), "a block of PEM does not end") {
		t.Errorf("of a file that is being written what stands there is taken for all; logged:\n%s", &log)
	}
	log.Reset()
	write(before.CA, after.CA)
	if !security.config("kafka").RootCAs.Equal(both) || log.Len() > 0 {
		t.Errorf("the authority that was added is not taken; logged:\n%s", &log)
	}
	write()
	if !security.config("kafka").RootCAs.Equal(both) || strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "name a PEM file with the brokers' authority") {
		t.Errorf("with an empty file other authorities are taken than those before; logged:\n%s", &log)
	}
}

func TestClientLogsOneLevelLower(t *testing.T) {
	var out bytes.Buffer
	c := Config{Kafka: config.Kafka{Brokers: []string{"127.0.0.1:1"}}}
	c.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	questions, end := ask(t, c)
	if _, err := askInTime(t, questions, forNothing); err == nil {
		t.Error("a port that nobody listens on answered")
	}
	end()
	if got := out.String(); !strings.Contains(got, "unable to open connection") || strings.Contains(got, "level=WARN") {
		t.Errorf("logged %q", got)
	}
}
