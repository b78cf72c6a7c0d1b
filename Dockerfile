ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM ${GO_IMAGE} AS build
WORKDIR /src
ENV CGO_ENABLED=0
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
# Go itself stamps version and commit in, from .git. A work tree of git has none
# here, and is built without.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    if [ -d .git ]; then stamp=true; else stamp=false; fi; \
    go build -trimpath -buildvcs=$stamp -tags nomsgpack -ldflags '-s -w' -o / ./cmd/stockd ./cmd/stocklab && /stockd version

FROM ${BASE_IMAGE} AS stocklab
COPY --from=build /stocklab /stocklab
ENTRYPOINT ["/stocklab"]

# The last target is what an image is built from where none is named.
FROM ${BASE_IMAGE} AS stockd
COPY --from=build /stockd /stockd
ENV STOCKD_HTTP_LISTEN=0.0.0.0:8080
EXPOSE 8080 8081
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["/stockd", "healthcheck"]
ENTRYPOINT ["/stockd"]
CMD ["serve"]
