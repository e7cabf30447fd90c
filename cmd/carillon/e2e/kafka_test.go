package e2e

import (
	_ "embed"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

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
	admin   *kadm.Client
}

type kafkaBroker struct {
	Addr, Controller string
	ID, Replicas     int
	MinISR           int
	Voters, Data     string
	Ways             []*way

	inside     []string // what runs it elsewhere, in a network namespace say
	properties string
	process    *process
}

// kafkaJars returns the folder with the jars of pom.xml, fetched by Maven at the first use.
func kafkaJars(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
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

// kafkaJava returns the JVM with the class path of Kafka and these options more, without the main class.
func kafkaJava(t testing.TB, dir string, more ...string) []string {
	t.Helper()
	logging := filepath.Join(dir, "log4j2.properties")
	write(t, logging, kafkaLogging)
	options := []string{
		"java", "-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=file:" + logging, "-cp", kafkaJars(t) + "/*",
	}
	return append(options, more...)
}

// kafkaClasses returns an archive of the classes that a broker loads, which the first use makes: with
// it a broker starts with half the work of the processor. A JVM of another version does without it.
func kafkaClasses(t testing.TB) string {
	t.Helper()
	archive := filepath.Join(cache(t, "kafka-4.3.1"), "classes.jsa")
	dir := t.TempDir()
	java := kafkaJava(t, dir, "-XX:ArchiveClassesAtExit="+archive+".part")
	shared.Lock()
	defer shared.Unlock()
	if _, err := os.Stat(archive); err == nil {
		return archive
	}
	addrs := freeAddrs(t, 2)
	k := formatKafka(t, dir, java, &kafkaBroker{Addr: addrs[0], Controller: addrs[1]})
	k.start()
	k.brokers[0].process.stop()
	if err := os.Rename(archive+".part", archive); err != nil {
		t.Fatalf("Kafka has ended without an archive of its classes: %v\n%s", err, tail(k.brokers[0].process.log, 2<<10))
	}
	return archive
}

// startKafka starts one broker per address and returns when all of them serve.
func startKafka(t testing.TB, addrs ...string) *kafkaCluster {
	t.Helper()
	var brokers []*kafkaBroker
	for i, controller := range freeAddrs(t, len(addrs)) {
		brokers = append(brokers, &kafkaBroker{Addr: addrs[i], Controller: controller})
	}
	k := newKafka(t, brokers...)
	k.start()
	return k
}

// startKafkaBehind starts a broker for each list of ways, by which it is reached besides. All lists have the same names: who
// comes by a way is told of the others' ways of its name.
func startKafkaBehind(t testing.TB, ways ...[]*way) *kafkaCluster {
	t.Helper()
	var brokers []*kafkaBroker
	addrs := freeAddrs(t, 2*len(ways))
	for i := range ways {
		brokers = append(brokers, &kafkaBroker{Addr: addrs[2*i], Controller: addrs[2*i+1], Ways: ways[i]})
	}
	k := newKafka(t, brokers...)
	k.start()
	return k
}

// newKafka configures and formats a cluster of brokers that have addresses, and starts nothing.
func newKafka(t testing.TB, brokers ...*kafkaBroker) *kafkaCluster {
	t.Helper()
	needs(t, "java", "mvn")
	dir := t.TempDir()
	return formatKafka(t, dir, kafkaJava(t, dir, "-XX:SharedArchiveFile="+kafkaClasses(t)), brokers...)
}

func formatKafka(t testing.TB, dir string, java []string, brokers ...*kafkaBroker) *kafkaCluster {
	t.Helper()
	k := &kafkaCluster{t: t, brokers: brokers, java: java}
	k.admin = kadm.NewClient(k.client())
	var voters []string
	for i, b := range brokers {
		b.ID, b.Data = i+1, filepath.Join(dir, "data"+strconv.Itoa(i+1))
		b.Replicas = min(3, len(brokers))
		b.MinISR = max(1, b.Replicas-1)
		voters = append(voters, strconv.Itoa(b.ID)+"@"+b.Controller)
	}
	id := base64.RawURLEncoding.EncodeToString([]byte("carillon-e2e-1.0"))
	properties := template.Must(template.New("properties").Parse(kafkaProperties))
	for _, b := range brokers {
		b.Voters = strings.Join(voters, ",")
		var text strings.Builder
		if err := properties.Execute(&text, b); err != nil {
			t.Fatal(err)
		}
		b.properties = filepath.Join(dir, strconv.Itoa(b.ID)+".properties")
		write(t, b.properties, []byte(text.String()))
		run(t, dir, nil, append(slices.Clip(k.java), "kafka.tools.StorageTool", "format", "-t", id, "-c", b.properties)...)
	}
	return k
}

// start starts the brokers that do not run, with the data they have, and waits until they serve.
func (k *kafkaCluster) start() {
	k.t.Helper()
	k.startWithin(patience)
}

func (k *kafkaCluster) startWithin(limit time.Duration) {
	k.t.Helper()
	for _, b := range k.brokers {
		if b.process == nil || !b.process.running() {
			k.launch(b)
		}
	}
	admin := kadm.NewClient(k.client())
	await(k.t, limit, "all brokers of Kafka serve", func() bool {
		brokers, err := admin.ListBrokers(k.t.Context())
		return err == nil && len(brokers) == len(k.brokers)
	})
}

func (k *kafkaCluster) launch(b *kafkaBroker) {
	k.t.Helper()
	b.process = start(k.t, "kafka "+strconv.Itoa(b.ID), nil, slices.Concat(b.inside, k.java, []string{"kafka.Kafka", b.properties})...)
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

// written returns how many records the topic has got, markers of transactions included, if Kafka tells.
func (k *kafkaCluster) written(topic string) (total int64, known bool) {
	ends, err := k.admin.ListEndOffsets(k.t.Context(), topic)
	ends.Each(func(end kadm.ListedOffset) { total += end.Offset })
	return total, err == nil
}

// write writes a whole file that only this user needs.
func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
