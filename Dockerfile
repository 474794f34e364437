# Two images: `gateway` (small) and `spark` (with Java and pyspark, for the example job).
FROM python:3.11.13-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY gateway gateway
COPY dispatcher dispatcher
COPY settled settled
COPY offsets offsets
COPY schema_dist schema_dist
COPY clusters clusters
COPY spark spark
# Every dependency as a wheel, so that the images below need no compiler; Keyway's own has the
# compiled modules in it.
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.'
RUN pip wheel --no-cache-dir --wheel-dir /wheels-demo '.[demo]'

FROM python:3.11.13-slim-bookworm AS gateway
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels keyway && rm -rf /wheels
RUN useradd --create-home --home-dir /var/lib/keyway --uid 10001 keyway
USER keyway
WORKDIR /var/lib/keyway
EXPOSE 9180 9192 9201
ENTRYPOINT ["keyway"]
CMD ["serve", "--config", "/etc/keyway/keyway.yaml"]

FROM python:3.11.13-slim-bookworm AS spark
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels-demo /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels 'keyway[demo]' && rm -rf /wheels
RUN useradd --create-home --uid 10001 keyway
USER keyway
WORKDIR /home/keyway
ENTRYPOINT ["python"]
