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
# Keyway's own wheel, with the compiled modules in it, for both images.
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /own .

# Every dependency as a wheel, so that the images need no compiler. Keyway's own is given by its
# path: no index is asked for its name.
FROM build AS gateway-wheels
RUN pip wheel --no-cache-dir --wheel-dir /wheels /own/*.whl

FROM build AS spark-wheels
RUN own=$(echo /own/*.whl) && pip wheel --no-cache-dir --wheel-dir /wheels "${own}[demo]"

FROM python:3.11.13-slim-bookworm AS gateway
RUN useradd --create-home --home-dir /var/lib/keyway --uid 10001 keyway
COPY --from=gateway-wheels /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels keyway-gateway && rm -rf /wheels
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
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-wheels /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels 'keyway-gateway[demo]' && rm -rf /wheels
RUN useradd --create-home --uid 10001 keyway
USER keyway
WORKDIR /home/keyway
# The demos are in no wheel. Python finds them here.
COPY demo demo
ENTRYPOINT ["python"]
