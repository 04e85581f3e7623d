#!/bin/sh
# rust/oxide/setup.sh FOLDER: the cuda-oxide of pins.toml, built into the folder that IRR_OXIDE then names (README.md).
# Needs git, a C compiler and either rustup or, on PATH, the pinned nightly with rust-src, rustc-dev and llvm-tools (the
# flake's shell brings it). Used by the Dockerfile and the flake, so that both build the same thing.
set -eu

die() { printf 'setup.sh: %s\n' "$1" >&2; exit 1; }
[ $# = 1 ] || die 'usage: setup.sh FOLDER'
root=$(cd "$(dirname "$0")/../.." && pwd -P)
mkdir -p "$1"
folder=$(cd "$1" && pwd -P)

pin() { # a string of pins.toml's table [oxide]
    sed -n "/^\[oxide\]/,/^\[/ s/^$1 = \"\(.*\)\".*/\1/p" "$root/pins.toml" | grep . || die "pins.toml has no oxide.$1"
}
repository=$(pin repository)
revision=$(pin revision)
toolchain=$(pin toolchain)

if command -v rustup >/dev/null 2>&1; then
    rustup toolchain install "$toolchain" --profile minimal --component rust-src,rustc-dev,llvm-tools
    rustc=$(rustup which --toolchain "$toolchain" rustc)
else
    rustc=$(command -v rustc) || die "neither rustup nor rustc on PATH; $toolchain is needed"
fi
# cargo beside the compiler: another one on PATH would bring another rustc.
cargo=$(dirname "$rustc")/cargo
[ -x "$cargo" ] || die "no cargo beside $rustc"

checkout=$folder/cuda-oxide
if ! git -C "$checkout" cat-file -e "$revision^{commit}" 2>/dev/null; then
    rm -rf "$checkout"
    # One commit without its history; GitHub serves it by its whole name.
    git init -q "$checkout"
    git -C "$checkout" fetch -q --depth 1 "https://github.com/$repository" "$revision" ||
        die "github.com/$repository has no commit $revision, or cannot be reached"
fi
git -C "$checkout" -c advice.detachedHead=false checkout -q "$revision"

(cd "$checkout/crates/rustc-codegen-cuda" && RUSTC=$rustc "$cargo" build --release --locked)
ln -sfn cuda-oxide/crates/rustc-codegen-cuda/target/release/librustc_codegen_cuda.so "$folder/librustc_codegen_cuda.so"
ln -sfn "$rustc" "$folder/rustc"
ln -sfn "$cargo" "$folder/cargo"
printf 'cuda-oxide %s is in %s: set IRR_OXIDE=%s\n' "$revision" "$folder" "$folder"
