# irr on a machine with Nix:
#
#   nix run . -- reproduce        in a checkout, or: nix run github:OWNER/REPOSITORY -- reproduce
#   nix develop                   a shell in which ./irr finds everything
#
# The packages are the locked wheels, as everywhere else (requirements.txt; ./irr makes .venv at its first call), in an
# FHS environment, because wheels look for the loader and for libraries where other distributions have them. Versions
# come from pins.toml; those of the inputs must be literals and are held to it by tests/test_pins.py.
#
# The NVIDIA driver is the host's, never Nix's: on NixOS /run/opengl-driver/lib; elsewhere libcuda and what it loads are
# linked from the host's library folders (also WSL's), or from the folder that IRR_DRIVER_LIBS names.
{
  description = "One TSDF fusion study, re-run on any NVIDIA GPU: claim by claim, what holds";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/549bd84d6279f9852cae6225e372cc67fb91a4c1";
    rust-overlay = {
      url = "github:oxalica/rust-overlay/1d634a90dffb59ec9ba52652de311b15528c1595";
      inputs.nixpkgs.follows = "nixpkgs";
    };
  };

  outputs =
    {
      self,
      nixpkgs,
      rust-overlay,
    }:
    let
      pins = builtins.fromTOML (builtins.readFile ./pins.toml);
      # Only what the lock's CUDA wheels serve.
      system = "x86_64-linux";
      pkgs = import nixpkgs {
        inherit system;
        overlays = [ (import rust-overlay) ];
      };

      python = pkgs."python${builtins.replaceStrings [ "." ] [ "" ] pins.python.default}";
      target = "nvptx64-nvidia-cuda";

      # cuda-oxide's compiler, with what its backend links against.
      nightly =
        pkgs.rust-bin.nightly.${builtins.replaceStrings [ "nightly-" ] [ "" ] pins.oxide.toolchain}.minimal.override
          {
            extensions = [
              "rust-src"
              "rustc-dev"
              "llvm-tools"
            ];
          };

      # Stock rustc. An overlay that is older than the pinned release gives its latest; manifests name the difference.
      stock = (pkgs.rust-bin.stable.${pins.rust.version} or pkgs.rust-bin.stable.latest).minimal.override {
        targets = [ target ];
      };

      # Builds cuda-oxide as the Dockerfile does, with this flake's compiler in rustup's place, into cache/oxide.
      oxide = pkgs.writeShellScriptBin "irr-oxide" ''
        PATH=${nightly}/bin:$PATH exec "''${IRR_CHECKOUT:-$PWD}/rust/oxide/setup.sh" "''${IRR_CHECKOUT:-$PWD}/cache/oxide"
      '';

      # Runs inside the FHS environment, at its start.
      profile = ''
        export IRR_CHECKOUT="''${IRR_CHECKOUT:-$PWD}" IRR_NO_SYSTEM=1 IRR_RUSTC=${stock}/bin/rustc
        if [ -d "$IRR_CHECKOUT/cache/oxide/cuda-oxide" ]; then
          export IRR_OXIDE="''${IRR_OXIDE:-$IRR_CHECKOUT/cache/oxide}"
        fi

        # The wheels' toolkit: the one that the harness takes anyway, named for tools that know CUDA_HOME alone. There is
        # no NVRTC in the lock, because nothing is compiled at run time; its wheel would lie in the same lib folder.
        export CUDA_HOME="$IRR_CHECKOUT/.venv/lib/python${pins.python.default}/site-packages/nvidia/cu13"

        driver=/run/opengl-driver/lib
        if [ ! -e "$driver/libcuda.so.1" ]; then
          # Links to the driver alone: with the host's whole folder its libc would come in too.
          for folder in "''${IRR_DRIVER_LIBS:-}" /host/usr/lib/x86_64-linux-gnu /host/usr/lib64 /host/usr/lib /host/usr/lib/wsl/lib; do
            if [ -n "$folder" ] && [ -e "$folder/libcuda.so.1" ]; then
              driver="''${TMPDIR:-/tmp}/irr-driver-$(id -u)"
              mkdir -p -m 700 "$driver"
              for library in "$folder"/libcuda.so* "$folder"/libnvidia-*.so* "$folder"/libdxcore.so; do
                if [ -e "$library" ]; then ln -sfn "$library" "$driver/"; fi
              done
              break
            fi
          done
        fi
        # Triton asks /sbin/ldconfig for libcuda unless it is told.
        export TRITON_LIBCUDA_PATH="$driver"
        libraries=/run/opengl-driver/lib
        if [ "$driver" != "$libraries" ]; then libraries="$libraries:$driver"; fi
        export LD_LIBRARY_PATH="$libraries:$CUDA_HOME/lib''${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
      '';

      environment = pkgs.buildFHSEnv {
        name = "irr-environment";
        targetPkgs = p: [
          python
          oxide
          p.gcc
          p.git
          p.gnused
          p.coreutils
          p.util-linux
          p.libffi
          p.libxml2
          p.zstd
          p.zlib
          # what Open3D loads
          p.libusb1
          p.libGL
          p.libgbm
          p.xorg.libX11
          p.stdenv.cc.cc.lib
        ];
        inherit profile;
        # The FHS environment covers the host's /usr; the driver's libraries are there on most distributions.
        extraBwrapArgs = [ "--ro-bind-try /usr /host/usr" ];
        runScript = "bash";
      };

      # From a checkout: in it. From elsewhere: in a copy of this revision, since results and .venv need a place.
      run = pkgs.writeShellScriptBin "irr" ''
        set -eu
        if [ ! -x ./irr ] || [ ! -r ./pins.toml ]; then
          place="''${XDG_DATA_HOME:-$HOME/.local/share}/irr/${builtins.substring 0 12 (builtins.hashString "sha256" self.narHash)}"
          if [ ! -x "$place/irr" ]; then
            mkdir -p "$(dirname "$place")"
            cp -r --no-preserve=mode ${self} "$place.part"
            chmod +x "$place.part/irr" "$place.part/rust/oxide/setup.sh"
            mv "$place.part" "$place"
          fi
          echo "irr: works in $place" >&2
          cd "$place"
          export IRR_COMMIT="${self.rev or ""}"
        fi
        exec ${environment}/bin/irr-environment -c 'exec ./irr "$@"' irr "$@"
      '';
    in
    {
      packages.${system} = {
        default = run;
        inherit environment;
      };
      apps.${system}.default = {
        type = "app";
        program = "${run}/bin/irr";
      };
      devShells.${system}.default = environment.env;
    };
}
