# The image of all that `lowmark` runs in Kubernetes: trackers, local trackers, jobs.
#
#   docker build --tag lowmark .
#
# Pinned: Debian by its digest, Python packages by their hashes. What Debian has fixed since comes by apt-get.
# `make chart` runs these very steps in a chroot, as far as that can be.
ARG BASE=debian:13.7-slim@sha256:a99cfc517144bc59b1978475ec53b46ecabec7e43635402ee5b77cc54cd1b20a

FROM ${BASE} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv
RUN python3 -m venv /opt/lowmark
WORKDIR /src
COPY image.lock ./
RUN /opt/lowmark/bin/pip install --no-cache-dir --no-compile --require-hashes --requirement image.lock
COPY pyproject.toml README.md LICENSE ./
COPY proto ./proto
COPY lowmark ./lowmark
COPY tracker ./tracker
COPY local_tracker ./local_tracker
COPY fronts ./fronts
# What built it stays behind; byte code is made now, since the root file system will be read only.
RUN /opt/lowmark/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/lowmark/bin/pip uninstall --yes hatchling pathspec pluggy tomlkit trove-classifiers \
    && /opt/lowmark/bin/pip uninstall --yes pip \
    && python3 -m compileall -q -j 0 /opt/lowmark/lib

FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log \
    && groupadd --gid 65532 lowmark \
    && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin lowmark \
    && install --directory --owner 65532 --group 65532 /var/lib/lowmark /run/lowmark
COPY --from=build /opt/lowmark /opt/lowmark
ENV PATH=/opt/lowmark/bin:/usr/local/bin:/usr/bin:/bin
ENV PYTHONUNBUFFERED=1
ENV PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 65532:65532
EXPOSE 7070 7072
ENTRYPOINT ["lowmark"]
CMD ["--help"]
