"""What the package tests share: their settings and running CMake."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest


def path(name: str) -> pathlib.Path:
    return pathlib.Path(os.environ[name])


def flag(name: str) -> bool:
    return os.environ[name] == "1"


SOURCE = path("PROJECT_SOURCE")
HERE = SOURCE / "tests/package"
WORK = path("WORK")
PREFIX = path("PREFIX")
LIBTORCH = path("LIBTORCH")
# CLI11's, which a program that includes <ddprun/training/command_line.h> brings itself.
CLI11_INCLUDES = os.environ["CLI11_INCLUDES"].replace(":", ";")


def run(*command, check=True, **options) -> subprocess.CompletedProcess:
    """Runs a command; the result holds what it printed. With check, a failure fails the test and shows that."""
    command = [str(word) for word in command]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if check and result.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\nexit status {result.returncode}\n{result.stdout}")
    return result


def configure(source, build, *arguments, check=True, **options) -> subprocess.CompletedProcess:
    """Configures from scratch: no answer of an earlier run is taken over."""
    shutil.rmtree(build, ignore_errors=True)
    is_gcc = flag("COMPILER_IS_GNU") and not any("CMAKE_CXX_COMPILER=" in str(argument) for argument in arguments)
    # Without a build type: neither optimised nor with debug information, the fastest to compile; and with as few collections of
    # garbage as the project's own build has (DdprunBuild.cmake).
    return run(
        "cmake", "-S", source, "-B", build, "-G", "Ninja", "-D", "FETCHCONTENT_FULLY_DISCONNECTED=ON",
        "-D", f"CMAKE_CXX_COMPILER={os.environ['COMPILER']}",
        "-D", f"CMAKE_CXX_COMPILER_LAUNCHER={os.environ['COMPILER_LAUNCHER']}",
        *(("-D", "CMAKE_CXX_FLAGS_INIT=--param=ggc-min-heapsize=1000000") if is_gcc else ()), *arguments, check=check, **options,
    )  # fmt: skip


def readme_program() -> str:
    """The README's first C++ block."""
    blocks = (SOURCE / "README.md").read_text().split("```cpp\n")
    return blocks[1].split("```")[0]


def without_launcher_variables() -> dict[str, str]:
    """This environment without a job's variables: the program runs alone."""
    names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return {name: value for name, value in os.environ.items() if name not in names}


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    sys.argv[0] = pathlib.Path(sys.argv[0]).name
    unittest.main(verbosity=2)
