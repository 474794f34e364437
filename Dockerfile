# Two images: `gateway` (small) and `spark` (with Java and pyspark, for the example job).
FROM python:3.11.13-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY gateway gateway
COPY dispatcher dispatcher
COPY offsets offsets
COPY schema_dist schema_dist
COPY keyway keyway
COPY spark spark
# Keyway's own wheel, with the compiled modules in it, for both images. 0: they stay interpreted.
ARG KEYWAY_COMPILE=1
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /own .

# An environment for each image, so that the images need no compiler. Keyway's own package is given
# by its path: no index is asked for its name.
FROM build AS gateway-environment
RUN python -m venv --without-pip /opt/keyway \
    && pip --python /opt/keyway/bin/python install --no-cache-dir /own/*.whl \
    && find /opt/keyway -name '*.so' -exec strip --strip-unneeded {} +

FROM build AS spark-environment
RUN own=$(echo /own/*.whl) && python -m venv --without-pip /opt/keyway \
    && pip --python /opt/keyway/bin/python install --no-cache-dir "${own}[demo]"

FROM python:3.11.13-slim-bookworm AS gateway
RUN useradd --create-home --home-dir /var/lib/keyway --uid 10001 keyway
COPY --from=gateway-environment /opt/keyway /opt/keyway
ENV PATH=/opt/keyway/bin:$PATH
USER keyway
WORKDIR /var/lib/keyway
# The state of the embedded Redis, if no other one is configured.
VOLUME /var/lib/keyway
EXPOSE 9180 9192 9201
# Is it alive? A Kafka that is away is no reason to end the node.
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9180/health/live', timeout=4)"]
ENTRYPOINT ["keyway"]
CMD ["serve", "--config", "/etc/keyway/keyway.yaml"]

FROM python:3.11.13-slim-bookworm AS spark
# Java's package links manuals there, and a slim image may lack it.
RUN mkdir -p /usr/share/man/man1 && apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-environment /opt/keyway /opt/keyway
ENV PATH=/opt/keyway/bin:$PATH
RUN useradd --create-home --uid 10001 keyway
USER keyway
WORKDIR /home/keyway
# Jobs run in one container each: Spark need not look up its host's name, which may have no address.
ENV SPARK_LOCAL_IP=127.0.0.1
# Spark's Kafka connector: a job needs no network but Kafka's. Java takes options for its download
# here, such as another trust store. And the classes of a session, for a quick start.
ARG JAVA_TOOL_OPTIONS
RUN python -m spark.session && python -m spark.class_archive
# The demos are in no wheel. Python finds them here.
COPY demo demo
ENTRYPOINT ["python"]
