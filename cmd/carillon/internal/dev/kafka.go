package dev

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/config"
)

// devPartitions is how many partitions a topic of the embedded Kafka has.
const devPartitions = 3

// ServeKafka runs kfake on loopback until ctx ends, then writes its state down.
func ServeKafka(ctx context.Context, port int, dir string, stderr io.Writer) error {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	kafka, err := kfake.NewCluster(
		kfake.Ports(port),
		kfake.DataDir(dir),
		kfake.DefaultNumPartitions(devPartitions),
		kfake.AllowAutoTopicCreation(),
		kfake.WithLogger(kfake.BasicLogger(stderr, kfake.LogLevelWarn)),
	)
	if err != nil {
		return &config.FieldError{Field: "--kafka-port", Value: address, Remedy: fmt.Sprintf("the embedded Kafka does not start, free the port or choose another: %v", err)}
	}
	defer kafka.Close()
	// On demand means for whoever asks, also for clients that do not ask for it.
	kafka.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		request.(*kmsg.MetadataRequest).AllowAutoTopicCreation = true
		return nil, nil, false
	})
	<-ctx.Done()
	return nil
}
