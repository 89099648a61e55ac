# shellcheck shell=bash disable=SC2034
# Functions and settings shared by scripts/setup, demo, test and bench, which source this file from the project's root.

step() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
fail() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  [ $# -lt 2 ] || printf '    %s\n' "${@:2}" >&2
  exit 1
}

# Ends the child processes when the script ends, for example because `kill` was sent to the script alone. Grandchildren
# continue: apt may be in the middle of an installation, which it must finish.
stop_children() {
  local list=/proc/$$/task/$$/children children
  [ ! -e "$list" ] || read -ra children <"$list" || true # the file does not end with a newline
  [ -z "${children-}" ] || kill "${children[@]}" 2>/dev/null || true
}
trap stop_children EXIT

# The cache for downloads and compiler results, shared by all checkouts.
cache=${DDPRUN_CACHE:-${HOME:-$(unset HOME && cd ~ && pwd)}/.cache/ddprun}
case $cache in /*) ;; *) cache=$PWD/$cache ;; esac
export DDPRUN_CACHE=$cache # also used by LibTorch.cmake
export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache}
# ccache reads the includes from the dependency file of the compiler, so that it does not preprocess a source a second
# time if the cache does not contain it.
export CCACHE_DEPEND=${CCACHE_DEPEND-1}
# Precompiled headers may hide macros and __TIME__ from ccache. The headers of LibTorch do not depend on them.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS-pch_defines,time_macros}
# Precompiled headers have 500 MB and are a dependency of every source. With this setting they are read once, not for
# each source.
export CCACHE_INODECACHE=${CCACHE_INODECACHE-1}
# Enough for a few versions of PyTorch; one needs 1.5 GB.
export CCACHE_MAXSIZE=${CCACHE_MAXSIZE-10G}
# Lets checkouts in other folders use the compiler results of this one.
export CCACHE_BASEDIR=${CCACHE_BASEDIR-$PWD}

# The PyTorch version: DDPRUN_TORCH=2.15.0 scripts/setup uses another version than the default. Each version has a
# separate virtual environment and build folder.
torch_usual=2.15.0
torch_version=${DDPRUN_TORCH:-$torch_usual}
venv=$cache/venv-$torch_version
# Earlier versions of this script used this folder for their only version.
case $(cat "$cache/venv/ddprun.stamp" 2>/dev/null || true) in "torch==$torch_version "*) venv=$cache/venv ;; esac
# The preset of CMakePresets.json: DDPRUN_PRESET=asan scripts/test uses another preset than release.
preset=${DDPRUN_PRESET:-release}
build_name=build/$preset
[ "$torch_version" = "$torch_usual" ] || build_name=$build_name-torch-$torch_version
build=$PWD/$build_name
launcher_alone() { # a build without LibTorch has a separate build folder
  build_name=build/$preset-launcher
  build=$PWD/$build_name
}

# with_progress LOG COMMAND...: runs a long, silent command. Every 10 seconds it prints the elapsed time and the last
# line of the output. LOG contains the whole output; if the command fails, the end of it is shown.
with_progress() {
  local log=$1 start=$SECONDS beat status=0
  shift
  mkdir -p "${log%/*}"
  : >"$log"
  (
    # The sleep may outlive this script. It must not inherit descriptors, because then readers of our output, and
    # processes that wait for the locks of scripts/setup, would wait for it.
    while sleep 10 >/dev/null 2>&1 8>&- 9>&-; do
      note "$((SECONDS - start)) s: $(tail -n 1 "$log" | tr '\r' '\n' | tail -n 1 | cut -c 1-100)"
    done
  ) &
  beat=$!
  # The command runs in the foreground so that Ctrl-C reaches it.
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$beat" 2>/dev/null || true
  wait "$beat" 2>/dev/null || true
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log" >&2
    fail "\`$*\` failed with status $status after $((SECONDS - start)) s; its whole output: $log"
  fi
}

# Compiling one source that includes headers of LibTorch needs up to 2 GB.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 2000000)}' /proc/meminfo)
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}
