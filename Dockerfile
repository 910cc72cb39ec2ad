# One image for each service:
#
#   docker build --build-arg SERVICE=relay --build-arg VERSION=1.2.3 -t seahub-mq/relay:1.2.3 .
#
# The same sources, SERVICE, VERSION and COMMIT give the same binary, bit by bit. For images
# that are the same too, give both bases with their digests (GO_IMAGE, BASE_IMAGE).
ARG GO_IMAGE=golang:1.26.10-bookworm
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM ${GO_IMAGE} AS build
ARG SERVICE
WORKDIR /src
# No workspace: a service is built with the versions of its own go.mod.
ENV GOWORK=off GOTOOLCHAIN=local GOFLAGS=-buildvcs=false CGO_ENABLED=0
# Modules first, so that a change of code does not fetch them again.
COPY pkg/go.mod pkg/go.sum pkg/
COPY services/${SERVICE}/go.mod services/${SERVICE}/go.sum services/${SERVICE}/
RUN go -C services/${SERVICE} mod download
COPY pkg pkg
COPY services/${SERVICE} services/${SERVICE}
ARG VERSION=dev
ARG COMMIT=
RUN go -C services/${SERVICE} build -trimpath -ldflags "-s -w -X github.com/seahub/seahub-mq/pkg/service.version=${VERSION} -X github.com/seahub/seahub-mq/pkg/service.commit=${COMMIT}" -o /out/service .

# Certificates, a user and nothing to run but the binary.
FROM ${BASE_IMAGE}
ARG SERVICE
ARG VERSION=dev
ARG COMMIT=
LABEL org.opencontainers.image.title=${SERVICE} \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${COMMIT}
COPY --from=build /out/service /service
USER 65532:65532
EXPOSE 9090
ENTRYPOINT ["/service"]
CMD ["run"]
