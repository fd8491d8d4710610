# The same image as that of `make image`, for who has a container engine:
#
#   docker build --build-arg VERSION=$(git describe --tags --always) -t leaderd .
#
# `make image` needs none, and its image is the same bytes wherever it is made.

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS=linux TARGETARCH VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /out/usr/local/bin/leaderd ./cmd/leaderd
RUN mkdir -p /out/etc/ssl/certs && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ && \
    echo 'leaderd:x:65532:65532:leaderd:/var/lib/leaderd:/sbin/nologin' > /out/etc/passwd && \
    echo 'leaderd:x:65532:' > /out/etc/group && \
    mkdir -m 1777 /out/tmp && \
    mkdir -p /out/var/lib/leaderd && chown 65532:65532 /out/var/lib/leaderd && chmod 750 /out/var/lib/leaderd

FROM scratch
COPY --from=build /out/ /
COPY LICENSE /
# Kubernetes can tell that a number is not root, a name it cannot.
USER 65532:65532
WORKDIR /var/lib/leaderd
ENV PATH=/usr/local/bin LEADERD_DATA_DIR=/var/lib/leaderd
EXPOSE 7400 7401
ENTRYPOINT ["/usr/local/bin/leaderd"]
CMD ["serve"]
