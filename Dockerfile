# One image for our controllers and nothing else: small, without a shell user's tools, running as nobody in particular.
#
#   make image                                     # docker build -t multimirror:0.1.0 .
#   docker run --rm multimirror:0.1.0 multimirror --help
#   docker run --rm multimirror:0.1.0 builtin-controller --help
#
# All that comes from elsewhere is named by its hash: the base below (another one: --build-arg BASE=NAME@sha256:...; the
# newest says `docker buildx imagetools inspect python:3.13-slim`), what it runs in requirements.lock and what builds it
# in requirements-build.lock (`make lock` renews both). The package `kubernetes` is left out: 126 MB that only people's own
# kubeconfigs need.
#
# Where that base cannot be pulled: `python -m clusters.kind base-image` makes one of Debian's packages, and then
# `make image BASE=multimirror-base:trixie ALLOW_UNPINNED=1`. pip's settings of this host are given on, where they are
# set: `--build-arg PIP_INDEX_URL`.

ARG BASE=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${BASE} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements-build.lock \
    && python -m venv /opt/multimirror \
    && /opt/multimirror/bin/pip install --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY multimirror multimirror
COPY builtin_controller builtin_controller
COPY deploy deploy
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/multimirror/bin/pip install --no-deps --no-index /wheels/*.whl \
    && /opt/multimirror/bin/pip uninstall --yes pip

FROM ${BASE}
LABEL org.opencontainers.image.title="multimirror" \
      org.opencontainers.image.description="Runs ordinary Kubernetes Jobs on whichever worker cluster has room" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/multimirror /opt/multimirror
ENV PATH="/opt/multimirror/bin:$PATH" \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080 9443
ENTRYPOINT []
CMD ["multimirror", "run"]
