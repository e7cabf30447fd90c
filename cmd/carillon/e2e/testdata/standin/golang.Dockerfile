FROM standin-debian
COPY go /usr/local/go
COPY modules /go/pkg/mod
ENV GOPATH=/go GOTOOLCHAIN=local PATH=/usr/local/go/bin:/usr/bin:/bin
