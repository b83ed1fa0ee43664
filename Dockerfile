# One image for our controllers: small, without a shell user's tools, running as nobody in particular.
#
#   docker build -t multimirror:dev .
#   docker run --rm multimirror:dev builtin-controller --help

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY multimirror multimirror
COPY builtin_controller builtin_controller
COPY clusters clusters
COPY deploy deploy
RUN python -m venv /opt/multimirror \
    && /opt/multimirror/bin/pip install --no-cache-dir --disable-pip-version-check . \
    && /opt/multimirror/bin/pip uninstall --yes pip

FROM python:3.13-slim
LABEL org.opencontainers.image.title="multimirror" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/multimirror /opt/multimirror
ENV PATH="/opt/multimirror/bin:$PATH" \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT []
CMD ["builtin-controller", "--help"]
