FROM standin-debian
COPY kafka.sh /kafka.sh
COPY lib /opt/kafka/libs
RUN useradd -u 1000 appuser && mkdir -p /var/lib/kafka/data && chown -R appuser /var/lib/kafka
USER appuser
VOLUME /var/lib/kafka/data
CMD ["/bin/bash", "/kafka.sh"]
