# shellcheck shell=bash disable=SC2034
# What scripts/setup, demo, test and bench share. Sourced by them, from the project's root.

step() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
fail() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  [ $# -lt 2 ] || printf '    %s\n' "${@:2}" >&2
  exit 1
}

# A script that is ended (by kill, say, which reaches it alone) leaves nothing running. Not their children's children: apt may
# be in the middle of an installation, which it finishes.
stop_children() {
  local list=/proc/$$/task/$$/children children
  [ ! -e "$list" ] || read -ra children <"$list" || true # it ends with no new line
  [ -z "${children-}" ] || kill "${children[@]}" 2>/dev/null || true
}
trap stop_children EXIT

# Where what must not be fetched or compiled twice is kept, over all checkouts.
cache=${DDPRUN_CACHE:-${HOME:-$(unset HOME && cd ~ && pwd)}/.cache/ddprun}
case $cache in /*) ;; *) cache=$PWD/$cache ;; esac
export DDPRUN_CACHE=$cache # LibTorch.cmake looks into it
export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache}
# Includes are taken from the compiler's dependency file: what is not in the cache is not preprocessed twice.
export CCACHE_DEPEND=${CCACHE_DEPEND-1}
# What a precompiled header may hide from ccache (macros, __TIME__), LibTorch's headers don't depend on.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS-pch_defines,time_macros}
# Precompiled headers are of 500 MB, and are part of what each source is made of: they are read once, not for each.
export CCACHE_INODECACHE=${CCACHE_INODECACHE-1}
# Room for a few versions of PyTorch: one takes 1.5 GB.
export CCACHE_MAXSIZE=${CCACHE_MAXSIZE-10G}
# A checkout in another folder finds what this one has compiled.
export CCACHE_BASEDIR=${CCACHE_BASEDIR-$PWD}

# Which PyTorch: DDPRUN_TORCH=2.15.0 scripts/setup takes another than the usual one. Each has a virtual environment and a build
# folder of its own.
torch_usual=2.15.0
torch_version=${DDPRUN_TORCH:-$torch_usual}
venv=$cache/venv-$torch_version
# Where it lay before there was more than one.
case $(cat "$cache/venv/ddprun.stamp" 2>/dev/null || true) in "torch==$torch_version "*) venv=$cache/venv ;; esac
# Which preset of CMakePresets.json: DDPRUN_PRESET=asan scripts/test takes another than release.
preset=${DDPRUN_PRESET:-release}
build_name=build/$preset
[ "$torch_version" = "$torch_usual" ] || build_name=$build_name-torch-$torch_version
build=$PWD/$build_name
launcher_alone() { # what needs no LibTorch has a build folder of its own
  build_name=build/$preset-launcher
  build=$PWD/$build_name
}

# with_progress LOG COMMAND...: runs a long, silent command. Every 10 seconds it tells the time taken and the last line of
# the command's output; the whole output is in LOG, and its end is shown when the command fails.
with_progress() {
  local log=$1 start=$SECONDS beat status=0
  shift
  mkdir -p "${log%/*}"
  : >"$log"
  (
    # The sleep outlives us and holds no descriptor of ours: neither a reader of our output nor who wants scripts/setup's locks
    # must wait for it.
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

# Compiling one source that sees LibTorch's headers takes up to 2 GB.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 2000000)}' /proc/meminfo)
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}
