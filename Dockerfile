# The images of the operator, the brokers, and the Spark job of a Verification.
#
#   spark/jars.sh                                                         (for spark: its connector's jars)
#   docker build --build-arg IMAGE=broker --target broker -t plimsoll/broker .     (operator, broker, spark)
#
# BASE is any image with Python >= 3.11 and its venv module; for spark, Java 17 is added where it is
# missing. The two secrets are optional: a pip.conf and a CA bundle for machines that reach their
# package index in a way of their own.
ARG BASE=python:3.12-slim-bookworm
ARG WHEEL_BASE=${BASE}

FROM ${BASE} AS requirements
ARG IMAGE
WORKDIR /src
COPY pyproject.toml constraints.txt dev/requirements.py ./
RUN python3 requirements.py "$IMAGE" >/libraries.txt \
    && grep -E '^(pyspark|py4j|pyarrow)==' constraints.txt >/large.txt

# A layer that changes only when a version does. Everything is compiled here, because the root file
# system is read-only where it runs; unchecked, because copying rounds times.
FROM ${BASE} AS libraries
WORKDIR /src
COPY constraints.txt ./
COPY --from=requirements /libraries.txt /
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/plimsoll \
    && /opt/plimsoll/bin/pip install -q --no-compile -c constraints.txt -r /libraries.txt \
    && /opt/plimsoll/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/plimsoll/lib

# Our own packages, compiled.
FROM ${WHEEL_BASE} AS wheel
WORKDIR /src
COPY pyproject.toml dev/requirements.py ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    --mount=type=cache,target=/root/.cache/pip \
    python3 requirements.py build >/build.txt \
    && python3 -m venv /opt/build && /opt/build/bin/pip install -q -r /build.txt
COPY README.md LICENSE ./
COPY core core
COPY operator operator
COPY broker_image broker_image
COPY spark spark
COPY crds crds
COPY examples examples
RUN /opt/build/bin/pip wheel -q --no-deps --no-build-isolation --no-index -w /tmp/wheel . \
    && /opt/build/bin/pip install -q --no-compile --no-deps --no-index --target /opt/app /tmp/wheel/*.whl \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/app

FROM ${BASE} AS runtime
# Hadoop's code refuses to run as a user without a name.
RUN echo 'plimsoll:x:10001:10001:Plimsoll:/tmp:/usr/sbin/nologin' >>/etc/passwd \
    && echo 'plimsoll:x:10001:' >>/etc/group
ENV PYTHONPATH=/opt/app PATH=/opt/plimsoll/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1
WORKDIR /tmp

FROM runtime AS python
COPY --from=libraries /opt/plimsoll /opt/plimsoll
USER 10001:10001
# Last, since it alone changes with every source.
COPY --from=wheel /opt/app /opt/app

# kopf, the controller of every LogCluster, and their metadata log.
FROM python AS operator
# Never with -O: assertions are how the controller stops at its own bugs.
ENTRYPOINT ["python3", "-m", "plimsoll_operator"]

# Serves partitions from its volume; knows its disk and the controller, never Kubernetes.
FROM python AS broker
# Never with -O: assertions are how a broker stops at its own bugs.
ENTRYPOINT ["python3", "-m", "plimsoll_broker"]

# The large libraries: a layer that changes only when their own versions do. What a local Spark that
# reads Kafka never loads stays out (state stores, Hive, machine learning).
FROM ${BASE} AS large
COPY --from=requirements /large.txt /
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/plimsoll && /opt/plimsoll/bin/pip install -q --no-compile --no-deps -r /large.txt \
    && cd "$(/opt/plimsoll/bin/python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')" \
    && rm -rf examples data tests jars/rocksdbjni-* jars/spark-connect* jars/spark-mllib* jars/breeze* jars/spire* \
        jars/cats-kernel* jars/spark-hive* jars/hive-exec* jars/hive-metastore* jars/derby* \
        ../pyarrow/include ../pyarrow/tests ../pyarrow/libarrow_flight* \
    && /opt/plimsoll/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/plimsoll/lib

# The others. Everything is compiled here, because the root file system is read-only where it runs;
# unchecked, because copying rounds times.
FROM large AS spark-libraries
WORKDIR /src
COPY constraints.txt ./
COPY --from=requirements /libraries.txt /
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    --mount=type=cache,target=/root/.cache/pip \
    /opt/plimsoll/bin/pip install -q --no-compile -c constraints.txt -r /libraries.txt \
    && /opt/plimsoll/bin/python -m compileall -q --invalidation-mode unchecked-hash \
        -x '/(pyspark|pyarrow|py4j)/' /opt/plimsoll/lib

# Drives a topic, reads everything back, writes the verdict.
FROM runtime AS spark-runtime
RUN command -v java >/dev/null || { apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null \
    && rm -rf /var/lib/apt/lists/*; }
COPY --from=spark-libraries /opt/plimsoll /opt/plimsoll
COPY .cache/spark-jars /opt/jars
# Everything Spark writes goes below /tmp, the one place that is writable in the pod.
ENV HOME=/tmp SPARK_LOCAL_DIRS=/tmp PLIMSOLL_SPARK_JARS=/opt/jars

# The classes that a run loads, so that a Verification begins seconds sooner: anew when the job's own
# sources change, not with every other one. A builder's own name need not resolve.
FROM spark-runtime AS classes
COPY spark/plimsoll_spark /opt/app/plimsoll_spark
RUN SPARK_LOCAL_IP=127.0.0.1 python3 -m plimsoll_spark.class_archive

FROM spark-runtime AS spark
COPY --from=classes /opt/jars-*.jsa /opt/
USER 10001:10001
ENTRYPOINT ["python3", "-m", "plimsoll_spark.verification"]
# Last, since it alone changes with every source.
COPY --from=wheel /opt/app /opt/app
