# syntax=docker/dockerfile:1

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY bench bench
# What was compiled stays in caches of the builder: a change of ours compiles only ours.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked -p checkdam-server --features otlp \
    && install -D target/release/checkdam /out/checkdam \
    && mkdir -p /out/data

# A C library, certificates of authorities, and nothing else: no shell, no packages to patch.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="checkdam" \
      org.opencontainers.image.description="Exact rate limiting: one binary that limits rates, server and command line" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/checkdam /usr/local/bin/checkdam
COPY --from=build --chown=65532:65532 /out/data /var/lib/checkdam
# Inside a container others must reach the listeners; ports, and HOST and PORT of envoyproxy/ratelimit, stay free to
# be set. The admin listener stays on loopback until it is given a token.
ENV CHECKDAM_LISTEN_HOST=0.0.0.0 \
    CHECKDAM_DATA_DIR=/var/lib/checkdam \
    CHECKDAM_LOG_FORMAT=json
EXPOSE 8080 8081 8082
VOLUME /var/lib/checkdam
USER 65532:65532
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 CMD ["/usr/local/bin/checkdam", "health"]
ENTRYPOINT ["/usr/local/bin/checkdam"]
CMD ["serve"]
