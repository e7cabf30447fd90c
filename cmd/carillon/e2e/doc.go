// Package e2e runs Carillon from outside: the built binary in three processes against real Apache
// Kafka, under compose, on a disk that loses power, and through the snippets of the README. It has
// no code of its own, and needs root, a JDK, Maven, Docker and kcat: `make test` installs them.
// Without them its tests are skipped with the name of what is missing; under CI=true they fail.
//
// Tests that strike a cluster under load and count duplicates run one at a time, before the others:
// processors that others use delay heartbeats, and make some. The rest run beside each other.
package e2e
