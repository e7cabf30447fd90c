# Plain Dockerfile syntax only: the legacy builder of Debian's docker.io builds it as well.
FROM golang:1.26-bookworm AS build
# Where modules come from; compose passes the environment's settings on. Go takes an empty
# one for its default.
ARG GOPROXY
ARG GONOPROXY
ARG GOSUMDB
ARG GONOSUMDB
ARG GOPRIVATE
ARG GOINSECURE
WORKDIR /src
COPY . .
# timetzdata: the image has no time zone files.
RUN CGO_ENABLED=0 go build -trimpath -tags timetzdata -ldflags="-s -w" -o /out/carillon ./cmd/carillon && mkdir -m 0700 /out/data /out/tokens

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/carillon /carillon
# A named volume mounted on one of these takes over the owner.
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build --chown=65532:65532 /out/tokens /tokens
USER 65532:65532
VOLUME /data
# Asks the default address; a node with another one needs its own check, as in docker-compose.yml. It asks whether the
# process serves, not whether the node is ready: Swarm and ECS kill what is unhealthy, and a leader that Kafka does not
# answer is not ready.
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s CMD ["/carillon", "status", "--live"]
ENTRYPOINT ["/carillon"]
CMD ["serve", "--config", "/etc/carillon/carillon.yaml"]
