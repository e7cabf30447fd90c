package kafka

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/deliver"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/client"
)

// onLoopback runs a Kafka on loopback and returns what a node would be configured with to reach it.
func onLoopback(t *testing.T, options ...kfake.Opt) Config {
	t.Helper()
	cluster, err := kfake.NewCluster(append(options, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders.delay", "orders"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return Config{Kafka: config.Kafka{Brokers: cluster.ListenAddrs()}, Logger: slog.New(slog.DiscardHandler), ClientID: "carillon-n1"}
}

// passThrough writes a record with a Sink and reads it with a Source.
func passThrough(t *testing.T, c Config) error {
	t.Helper()
	sink, err := NewSink(c)
	if err != nil {
		return err
	}
	defer sink.Close()
	if _, err := countOf(t.Context(), sink, "orders.delay"); err != nil {
		return err
	}
	if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders.delay", Value: []byte("v")}); err != nil {
		return err
	}
	source, err := NewSource(c, func(topic string) bool { return topic == "orders.delay" })
	if err != nil {
		return err
	}
	defer source.Close()
	r := &reader{Source: source, t: t, next: make(map[int32]int64)}
	if found := r.discover(); len(found) != 1 {
		t.Errorf("found %+v, want orders.delay alone", found)
	}
	if got := r.read(1); string(got[0].Value) != "v" {
		t.Errorf("read %q", got[0].Value)
	}
	return nil
}

func TestPlainConnection(t *testing.T) {
	if err := passThrough(t, onLoopback(t)); err != nil {
		t.Error(err)
	}
}

func TestSASL(t *testing.T) {
	for mechanism, method := range map[string]string{"plain": "PLAIN", "scram-256": "SCRAM-SHA-256", "scram-512": "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			inBubble(t, func(t *testing.T, kafka bubble) {
				c := kafka.config()
				c.Kafka.SASL = config.SASL{Mechanism: mechanism, Username: "alice", Password: "secret"}
				if err := passThrough(t, c); err != nil {
					t.Error(err)
				}
				c.Kafka.SASL.Password = "wrong"
				if err := passThrough(t, c); !errors.Is(err, deliver.ErrTargetUnavailable) {
					t.Errorf("with a wrong password: %v", err)
				}
			}, kfake.EnableSASL(), kfake.Superuser(method, "alice", "secret"), kfake.SeedTopics(1, "orders.delay"))
		})
	}
}

// franz-go's own default is snappy, which kafka-python, KafkaJS and the jar of Kafka's Java client
// cannot read by themselves. Not in a bubble: the zstd of franz-go is closed by a finalizer.
func TestSinkCompressesOnlyAsConfigured(t *testing.T) {
	if name := config.Default().Kafka.Compression; name != "none" {
		t.Errorf("default %q", name)
	}
	for name, want := range map[string]kgo.CompressionCodecType{
		"": kgo.CodecNone, "none": kgo.CodecNone,
		"gzip": kgo.CodecGzip, "snappy": kgo.CodecSnappy, "lz4": kgo.CodecLz4, "zstd": kgo.CodecZstd,
	} {
		t.Run(name, func(t *testing.T) {
			c := onLoopback(t)
			c.Kafka.Compression = name
			sink, err := NewSink(c)
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			long := strings.Repeat("compressible ", 100) // what gets no shorter is never compressed
			if _, err := sendAndWait(sink, deliver.Delivery{Topic: "orders", Value: []byte(long)}); err != nil {
				t.Fatal(err)
			}
			reader, err := kgo.NewClient(kgo.SeedBrokers(c.Kafka.Brokers...), kgo.ConsumeTopics("orders"))
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			fetches := reader.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			r := fetches.Records()[0]
			if got := kgo.CompressionCodecType(r.Attrs.CompressionType()); got != want {
				t.Errorf("codec %d, want %d", got, want)
			}
			if string(r.Value) != long {
				t.Errorf("value %q", r.Value)
			}
		})
	}
}

func TestTLSWithClientCertificate(t *testing.T) {
	files := newCertificates(t)
	c := onLoopback(t, kfake.TLS(files.server))
	if err := passThrough(t, c); err == nil {
		t.Error("a plain connection to a TLS listener worked")
	}
	c.Kafka.TLS = config.TLS{Enabled: true, CA: files.ca, Cert: files.cert, Key: files.key}
	if err := passThrough(t, c); err != nil {
		t.Error(err)
	}
	c.Kafka.TLS.CA = ""
	if err := passThrough(t, c); err == nil {
		t.Error("an unknown authority was trusted")
	}
}

func TestUnusableSettingsNameFieldValueAndRemedy(t *testing.T) {
	files := newCertificates(t)
	for name, tt := range map[string]struct {
		kafka config.Kafka
		want  []string
	}{
		"missing authority": {config.Kafka{TLS: config.TLS{Enabled: true, CA: "nowhere.pem"}},
			[]string{"kafka.tls.ca", "nowhere.pem", "name a PEM file"}},
		"authority without certificate": {config.Kafka{TLS: config.TLS{Enabled: true, CA: files.key}},
			[]string{"kafka.tls.ca", files.key, "no certificate", "name a PEM file"}},
		"missing key": {config.Kafka{TLS: config.TLS{Enabled: true, Cert: files.cert, Key: "nowhere.pem"}},
			[]string{"kafka.tls.cert", "kafka.tls.key", "nowhere.pem", "belong together"}},
		"unknown mechanism": {config.Kafka{SASL: config.SASL{Mechanism: "kerberos"}},
			[]string{"kafka.sasl.mechanism", "kerberos", "scram-512"}},
		"unknown compression": {config.Kafka{Compression: "brotli"},
			[]string{"kafka.compression", "brotli", "none, gzip, snappy, lz4 or zstd"}},
	} {
		c := Config{Kafka: tt.kafka, Logger: slog.New(slog.DiscardHandler)}
		_, sinkErr := NewSink(c)
		_, sourceErr := NewSource(c, nil)
		for _, err := range []error{sinkErr, sourceErr} {
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

func TestBrokerAndClientAgreeOnTheContract(t *testing.T) {
	for ours, theirs := range map[string]string{
		message.CodeMalformed:   string(client.CodeMalformed),
		message.CodeUnsupported: string(client.CodeUnsupported),
	} {
		if ours != theirs {
			t.Errorf("broker says %q, client %q", ours, theirs)
		}
	}
}

func TestKafkaClientLogsOneLevelLower(t *testing.T) {
	var out bytes.Buffer
	c := onLoopback(t)
	c.Kafka.Brokers = []string{"127.0.0.1:1"}
	c.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	sink, err := NewSink(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := countOf(t.Context(), sink, "orders"); err == nil {
		t.Error("a port that nobody listens on answered")
	}
	sink.Close()
	if got := out.String(); !strings.Contains(got, "unable to open connection") || strings.Contains(got, "level=WARN") {
		t.Errorf("logged %q", got)
	}
}

type certificates struct {
	ca, cert, key string // PEM files
	server        *tls.Config
}

// newCertificates makes one self-signed certificate for 127.0.0.1 that is authority, server and client.
func newCertificates(t *testing.T) certificates {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	dir := t.TempDir()
	files := certificates{ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"),
		server: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}}
	for file, content := range map[string][]byte{files.ca: certPEM, files.cert: certPEM, files.key: keyPEM} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}
