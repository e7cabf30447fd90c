package ingest

import "errors"

var (
	// ErrSourceMissing is why a delay topic is not read that Kafka says does not exist.
	ErrSourceMissing = errors.New("no such topic in Kafka")
	// ErrSourceForbidden is why a delay topic is not read that we may not read or describe.
	ErrSourceForbidden = errors.New("access denied: allow Read and Describe")
	// errNotToldYet is why nothing is known of a topic that positions name.
	errNotToldYet = errors.New("not told by Kafka yet")
	// errKafkaSilent is why no partition is read while Kafka does not answer; the problem "kafka" says more.
	errKafkaSilent = errors.New("no answer from Kafka")
	// errNothingComes is said of a partition that is fetched in vain.
	errNothingComes = errors.New("nothing comes though there are records: the Kafka broker or a batch may be damaged")
	// errHung is why what follows in a partition is not read, though Kafka gives all that it gives anybody.
	errHung = errors.New("a transaction before them has not ended: find it with kafka-transactions.sh find-hanging, and abort it")
	// errShort is said of a partition that Kafka seems to have an older copy of.
	errShort = errors.New("what comes below the first of these is not read, for it may be that Kafka runs on an older copy of its disks: put the newer ones back, or create the topic anew and produce to that")
	// errNoStart is why a partition is not read whose route does not say where to begin.
	errNoStart = errors.New("held records when the cluster was born: set routes[].start to earliest or latest")
	// errTwoIDs is why nothing is asked of a topic for a while: it was deleted and created again, or a Kafka
	// broker is behind.
	errTwoIDs = errors.New("another topic id than before is named by Kafka")
)
