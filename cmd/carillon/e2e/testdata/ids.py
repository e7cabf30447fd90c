"""Schedules messages with ids, or cancels and replaces them, as ids_test.go asks.

usage: ids.py schedule|change BOOTSTRAP TOPIC COUNT DUE-MS

Message i has the value i, the id "id-i" and the key "key i"; it is due within eight seconds after
DUE-MS. Changing cancels every third message and replaces the one after it with the value COUNT+i, due
two seconds later. It does so 1.5 s before the first are due, and less and less for later ones: the
last are due already.
"""

import sys
import time

from confluent_kafka import Producer

what, bootstrap, topic, count, due = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
failed = []


def send(i, value, headers):
    headers = {"deliver-id": f"id-{i}", **headers}
    producer.produce(topic, value, f"key {i}", headers=headers, on_delivery=lambda e, _: e and failed.append(e))
    producer.poll(0)


for i in range(count):
    at = due + i * 8000 // count
    while what == "change" and (early := at - 1500 + 1620 * i // count - time.time() * 1000) > 0:
        producer.poll(early / 1000)
    if what == "schedule":
        send(i, str(i), {"deliver-at": str(at)})
    elif i % 3 == 0:
        send(i, None, {"deliver-cancel": "true"})
    elif i % 3 == 1:
        send(i, str(count + i), {"deliver-at": str(at + 2000)})
if producer.flush(60) or failed:
    sys.exit(f"not produced: {failed[:3]}")
