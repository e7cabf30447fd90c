package e2e

import (
	"embed"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed testdata/standin
var standinFiles embed.FS

// A dockerDaemon is a Docker of the test's own: what it builds and tags stays in it.
type dockerDaemon struct {
	t   testing.TB
	env []string // for docker and docker-compose
}

func startDocker(t testing.TB) *dockerDaemon {
	t.Helper()
	needs(t, "dockerd", "docker", "docker-compose", "iptables")
	needsRoot(t)
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "docker.sock")
	daemon := start(t, "dockerd", nil, "dockerd", "--host", socket, "--pidfile", filepath.Join(dir, "pid"),
		"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"))
	t.Cleanup(daemon.stop) // before it is killed, so that it takes containerd and its mounts down
	// The legacy builder is what Debian has; it needs no plug-in.
	d := &dockerDaemon{t: t, env: []string{"DOCKER_HOST=" + socket, "DOCKER_BUILDKIT=0"}}
	await(t, patience, "dockerd answers", func() bool { return d.try("version") == nil })
	return d
}

// docker runs a docker command to its end and returns what it printed.
func (d *dockerDaemon) docker(args ...string) string {
	d.t.Helper()
	return run(d.t, ".", d.env, append([]string{"docker"}, args...)...)
}

func (d *dockerDaemon) try(args ...string) error {
	return command(d.t, ".", d.env, append([]string{"docker"}, args...)...).Run()
}

// compose runs docker-compose to its end and returns what it printed.
func (d *dockerDaemon) compose(args ...string) string {
	d.t.Helper()
	return run(d.t, ".", d.env, append(d.composeCommand(), args...)...)
}

// composeCommand is docker-compose with the file that users get.
func (d *dockerDaemon) composeCommand() []string {
	return []string{"docker-compose", "--file", "../../../docker-compose.yml", "--project-name", "e2e"}
}

// standIns makes local images under the names of the public base images that the Dockerfile and
// the compose file name, so that both are tested as they are where no registry is reachable.
func (d *dockerDaemon) standIns() {
	d.t.Helper()
	needs(d.t, "debootstrap", "mvn")
	d.t.Log("base images are stand-ins made with debootstrap: golang:1.26-bookworm, apache/kafka:4.3.1")
	d.docker("import", debian(d.t), "standin-debian")

	kafka := d.context("kafka.Dockerfile", "kafka.sh")
	run(d.t, kafka, nil, "cp", "-r", kafkaJars(d.t), "lib")
	d.docker("build", "--tag", "apache/kafka:4.3.1", "--file", filepath.Join(kafka, "kafka.Dockerfile"), kafka)

	golang := d.context("golang.Dockerfile")
	slim(d.t, strings.TrimSpace(run(d.t, ".", nil, "go", "env", "GOROOT")), filepath.Join(golang, "go"))
	slim(d.t, modules(d.t), filepath.Join(golang, "modules"))
	d.docker("build", "--tag", "golang:1.26-bookworm", "--file", filepath.Join(golang, "golang.Dockerfile"), golang)
}

// context returns a new folder with the named files of testdata/standin.
func (d *dockerDaemon) context(files ...string) string {
	d.t.Helper()
	dir := d.t.TempDir()
	for _, file := range files {
		content, err := standinFiles.ReadFile("testdata/standin/" + file)
		if err != nil {
			d.t.Fatal(err)
		}
		write(d.t, filepath.Join(dir, file), content)
	}
	return dir
}

// modules returns a module cache that holds what the program needs and no more.
func modules(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	local := strings.TrimSpace(run(t, ".", nil, "go", "env", "GOMODCACHE"))
	proxies := strings.TrimSpace(run(t, ".", nil, "go", "env", "GOPROXY"))
	run(t, "..", []string{
		"GOMODCACHE=" + dir, "GOPROXY=file://" + local + "/cache/download," + proxies, "GOFLAGS=-modcacherw", "CGO_ENABLED=0",
	}, "go", "list", "-deps", ".")
	return dir
}

// slim copies Go sources without what only tests and downloads need: half a gigabyte.
func slim(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	copying := `tar -C "$0" --exclude=testdata --exclude='*_test.go' --exclude='*.zip' --exclude=./test -c . | tar -C "$1" -x`
	run(t, ".", nil, "bash", "-o", "pipefail", "-c", copying, from, to)
}

// debian returns an archive of a small Debian with a Java runtime, built at the first use.
func debian(t testing.TB) string {
	t.Helper()
	archive := filepath.Join(cache(t, "debian-bookworm"), "root.tar")
	if _, err := os.Stat(archive); err == nil {
		return archive
	}
	root := t.TempDir()
	run(t, ".", nil, "debootstrap", "--variant=minbase", "--include=openjdk-17-jre-headless,ca-certificates", "bookworm", root)
	run(t, ".", nil, "tar", "-C", root, "-cf", archive+".part", ".")
	if err := os.Rename(archive+".part", archive); err != nil {
		t.Fatal(err)
	}
	return archive
}
