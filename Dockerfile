# The image of the plannerd server: `docker build -t plannerd .`, tested by `make image-test`.
#
# Two stages: one installs the locked packages into /opt/plannerd, the other takes that folder alone. Nothing at run
# time needs a shell, a package manager, a writable root or a user that exists.

# Any image with Python 3.11 or newer that has venv, pip and ensurepip; its Python must stay at the same path in both
# stages. Pin it further with a digest: --build-arg PYTHON_IMAGE=docker.io/library/python@sha256:...
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
# Files get this time, so that the same sources make the same layer.
ARG SOURCE_DATE_EPOCH=1
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# What changes seldom comes first: the packages that are locked with their hashes, as wheels alone. What builds
# plannerd's own wheels lives in an environment that is left behind.
COPY requirements/run.lock requirements/build.lock requirements/
RUN python3 -m venv --without-pip /opt/plannerd \
 && python3 -m venv /build \
 && /build/bin/python -m pip --python /opt/plannerd/bin/python install \
      --require-hashes --only-binary :all: --no-deps --no-compile -r requirements/run.lock \
 && /build/bin/python -m pip install --require-hashes --only-binary :all: --no-deps -r requirements/build.lock

COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY protos/python protos/python
COPY server server
RUN /build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . ./protos/python \
 && /build/bin/python -m pip --python /opt/plannerd/bin/python install --no-deps --no-index --no-compile /wheels/*.whl \
 # What packages carry and a server never imports: tests, headers, static libraries, a stray source tree, and
 # extensions of CEL that conditions do not have. 60 MB.
 && rm -rf /opt/plannerd/lib/python3*/site-packages/bazel-project /opt/plannerd/lib/python3*/site-packages/cel_expr_python/ext \
 && find /opt/plannerd -depth \( -type d \( -name tests -o -name include \) -o -name '*.a' \) -exec rm -rf {} + \
 && PYTHONHASHSEED=0 /opt/plannerd/bin/python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash /opt/plannerd/lib \
 && /opt/plannerd/bin/plannerd version

FROM ${PYTHON_IMAGE}
ARG VERSION=0.0.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="plannerd" \
      org.opencontainers.image.description="A gRPC service that decides which agent runs next." \
      org.opencontainers.image.source="https://github.com/plannerd/plannerd" \
      org.opencontainers.image.documentation="https://github.com/plannerd/plannerd/blob/main/docs/README.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
ENV PATH=/opt/plannerd/bin:$PATH PYTHONDONTWRITEBYTECODE=1
COPY --from=build /opt/plannerd /opt/plannerd
# A number, so that Kubernetes sees that it is not root.
USER 65532:65532
WORKDIR /tmp
EXPOSE 50051
STOPSIGNAL SIGTERM
# Kubernetes has probes of its own and does not look at this.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["plannerd", "health"]
ENTRYPOINT ["plannerd"]
CMD ["serve"]
