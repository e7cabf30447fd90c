package e2e

import (
	_ "embed"
	"encoding/base64"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	//go:embed testdata/kafka/pom.xml
	kafkaPOM []byte
	//go:embed testdata/kafka/log4j2.properties
	kafkaLogging []byte
	//go:embed testdata/kafka/server.properties
	kafkaProperties string
)

// A kafkaCluster is real Apache Kafka in KRaft mode, one process per broker.
type kafkaCluster struct {
	t       testing.TB
	java    []string // the JVM with class path and options, without the main class
	brokers []*kafkaBroker
}

type kafkaBroker struct {
	Addr, Controller string
	ID, Replicas     int
	MinISR           int
	Voters, Data     string
	Ways             []*way

	properties string
	process    *process
}

// kafkaJars returns the folder with the jars of pom.xml, fetched by Maven at the first use.
func kafkaJars(t testing.TB) string {
	t.Helper()
	dir := cache(t, "kafka-4.3.1")
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return filepath.Join(dir, "lib")
	}
	write(t, filepath.Join(dir, "pom.xml"), kafkaPOM)
	run(t, dir, nil, "mvn", "-q", "-B", "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(dir, "lib"))
	write(t, complete, nil)
	return filepath.Join(dir, "lib")
}

// startKafka starts one broker per address and returns when all of them serve.
func startKafka(t testing.TB, addrs ...string) *kafkaCluster {
	t.Helper()
	return startKafkaBehind(t, nil, addrs...)
}

// startKafkaBehind is startKafka with further ways to reach the first broker.
func startKafkaBehind(t testing.TB, ways []*way, addrs ...string) *kafkaCluster {
	t.Helper()
	needs(t, "java", "mvn")
	dir := t.TempDir()
	logging := filepath.Join(dir, "log4j2.properties")
	write(t, logging, kafkaLogging)
	k := &kafkaCluster{t: t, java: []string{
		"java", "-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=file:" + logging, "-cp", kafkaJars(t) + "/*",
	}}
	controllers := freeAddrs(t, len(addrs))
	var voters []string
	for i, controller := range controllers {
		voters = append(voters, strconv.Itoa(i+1)+"@"+controller)
	}
	replicas := min(3, len(addrs))
	for i, addr := range addrs {
		k.brokers = append(k.brokers, &kafkaBroker{
			ID: i + 1, Addr: addr, Controller: controllers[i], Voters: strings.Join(voters, ","),
			Replicas: replicas, MinISR: max(1, replicas-1), Data: filepath.Join(dir, "data"+strconv.Itoa(i+1)),
		})
	}
	k.brokers[0].Ways = ways
	id := base64.RawURLEncoding.EncodeToString([]byte("carillon-e2e-1.0"))
	properties := template.Must(template.New("properties").Parse(kafkaProperties))
	for _, b := range k.brokers {
		var text strings.Builder
		if err := properties.Execute(&text, b); err != nil {
			t.Fatal(err)
		}
		b.properties = filepath.Join(dir, strconv.Itoa(b.ID)+".properties")
		write(t, b.properties, []byte(text.String()))
		run(t, dir, nil, append(k.java, "kafka.tools.StorageTool", "format", "-t", id, "-c", b.properties)...)
	}
	k.start()
	return k
}

// start starts the brokers that do not run, with the data they have, and waits until they serve.
func (k *kafkaCluster) start() {
	k.t.Helper()
	for _, b := range k.brokers {
		if b.process == nil || !b.process.running() {
			b.process = start(k.t, "kafka "+strconv.Itoa(b.ID), nil, append(k.java, "kafka.Kafka", b.properties)...)
		}
	}
	admin := kadm.NewClient(k.client())
	await(k.t, patience, "all brokers of Kafka serve", func() bool {
		brokers, err := admin.ListBrokers(k.t.Context())
		return err == nil && len(brokers) == len(k.brokers)
	})
}

// kill ends all brokers at once, as a power cut would, but for the page cache.
func (k *kafkaCluster) kill() {
	for _, b := range k.brokers {
		b.process.kill()
	}
}

func (k *kafkaCluster) addrs() []string {
	var addrs []string
	for _, b := range k.brokers {
		addrs = append(addrs, b.Addr)
	}
	return addrs
}

// client returns a client that lives as long as the test.
func (k *kafkaCluster) client(opts ...kgo.Opt) *kgo.Client {
	k.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.addrs()...)}, opts...)...)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(client.Close)
	return client
}

// create makes topics with the given number of partitions, replicated to all brokers.
func (k *kafkaCluster) create(partitions int32, topics ...string) {
	k.t.Helper()
	admin := kadm.NewClient(k.client())
	answers, err := admin.CreateTopics(k.t.Context(), partitions, -1, nil, topics...)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		k.t.Fatalf("create %v: %v", topics, err)
	}
}

// write writes a whole file that only this user needs.
func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
