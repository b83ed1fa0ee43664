# One image for our controllers and nothing else: small, without a shell user's tools, running as nobody in particular.
#
#   docker build -t multimirror:0.1.0 .
#   docker run --rm multimirror:0.1.0 multimirror --help
#   docker run --rm multimirror:0.1.0 builtin-controller --help

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY multimirror multimirror
COPY builtin_controller builtin_controller
COPY deploy deploy
RUN python -m venv /opt/multimirror \
    && /opt/multimirror/bin/pip install --no-cache-dir --disable-pip-version-check . \
    && /opt/multimirror/bin/pip uninstall --yes pip

FROM python:3.13-slim
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
