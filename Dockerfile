# migrator in a container: no shell, no root, and nothing written but to /run/migrator.
#   docker build --tag migrator .
# How to run it, and what of this was not tried: docs/containers.md
FROM python:3.11-slim-bookworm AS build
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
# what changes seldom comes first, so that a change of the code installs nothing anew
COPY requirements/run.txt requirements/build.txt requirements/
RUN ["python", "-m", "venv", "/opt/build"]
RUN ["/opt/build/bin/pip", "install", "--no-deps", "--require-hashes", "--requirement", "requirements/build.txt"]
RUN ["python", "-m", "venv", "--without-pip", "/opt/migrator"]
RUN ["/opt/build/bin/pip", "--python", "/opt/migrator/bin/python", "install", "--no-deps", \
     "--require-hashes", "--requirement", "requirements/run.txt"]
COPY pyproject.toml README.md LICENSE ./
COPY dev/metadata.py dev/
COPY alembic alembic
COPY migrator migrator
RUN ["/opt/build/bin/pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", "dist", "."]
RUN ["/opt/build/bin/pip", "--python", "/opt/migrator/bin/python", "install", "--no-index", \
     "--no-deps", "--find-links", "dist", "nservicebus-timeout-migrator"]

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="migrator" \
      org.opencontainers.image.description="Moves NServiceBus delayed messages from a legacy database into RabbitMQ's native delay queues." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/migrator /opt/migrator
ENV PATH=/opt/migrator/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1 \
    MIGRATOR_WEB__SOCKET=/run/migrator/control.sock
# fixed numbers, so that volumes and secrets can be given to them; there is no such user in the image
USER 10001:10001
WORKDIR /
STOPSIGNAL SIGTERM
# a start may take as long as its checks; then a loop that stands still shows here
HEALTHCHECK --interval=30s --timeout=10s --start-period=5m --retries=3 \
    CMD ["python", "-m", "migrator.web.probe", "/run/migrator/control.sock"]
ENTRYPOINT ["migrator"]
CMD ["run"]
