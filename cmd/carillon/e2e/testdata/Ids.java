import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Schedules messages with ids, or cancels and replaces them, as ids_test.go asks; the same as ids.py does.
 *
 * usage: java -cp KAFKA-CLIENTS Ids.java schedule|change BOOTSTRAP TOPIC COUNT DUE-MS
 */
class Ids {
    public static void main(String[] args) throws Exception {
        boolean change = args[0].equals("change");
        String topic = args[2];
        int count = Integer.parseInt(args[3]);
        long due = Long.parseLong(args[4]);
        var failed = new ConcurrentLinkedQueue<Exception>();
        Map<String, Object> settings = Map.of("bootstrap.servers", args[1], "acks", "all");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                long at = due + i * 8000L / count;
                ProducerRecord<String, String> record = null;
                long early = at - 1500 + 1620L * i / count - System.currentTimeMillis();
                if (change && early > 0) {
                    Thread.sleep(early);
                }
                if (!change) {
                    record = record(topic, i, "" + i, "deliver-at", "" + at);
                } else if (i % 3 == 0) {
                    record = record(topic, i, null, "deliver-cancel", "true");
                } else if (i % 3 == 1) {
                    record = record(topic, i, "" + (count + i), "deliver-at", "" + (at + 2000));
                }
                if (record != null) {
                    producer.send(record, (sent, e) -> { if (e != null) failed.add(e); });
                }
            }
        }
        if (!failed.isEmpty()) {
            System.err.println("not produced: " + failed.size() + " records, the first: " + failed.peek());
            System.exit(1);
        }
    }

    static ProducerRecord<String, String> record(String topic, int i, String value, String header, String text) {
        var record = new ProducerRecord<>(topic, "key " + i, value);
        record.headers().add("deliver-id", ("id-" + i).getBytes(StandardCharsets.UTF_8));
        record.headers().add(header, text.getBytes(StandardCharsets.UTF_8));
        return record;
    }
}
