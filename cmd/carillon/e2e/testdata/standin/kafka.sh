#!/bin/bash
# What the public apache/kafka image does at start: KAFKA_A_B=v becomes a.b=v, then format and run.
set -e
config=/tmp/server.properties
env | sed -n 's/^KAFKA_\([A-Z0-9_]*\)=\(.*\)$/\1 \2/p' | while read -r name value; do
  echo "$(tr 'A-Z_' 'a-z.' <<<"$name")=$value"
done >"$config"
export CLASSPATH='/opt/kafka/libs/*'
java kafka.tools.StorageTool format -g -t 5L6g3nShT-eMCtK--X86sw -c "$config"
exec java -Xmx512m kafka.Kafka "$config"
