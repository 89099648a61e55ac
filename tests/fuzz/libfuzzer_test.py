"""Builds the fuzz targets with clang and lets libFuzzer run each for FUZZ_SECONDS (5). Exit status 77: clang cannot."""

import os
import shutil
import subprocess
import sys

SOURCE, BUILD = os.environ["SOURCE"], os.environ["BUILD"]
TARGETS = os.environ["TARGETS"].split(",")
SECONDS = os.environ.get("FUZZ_SECONDS", "5")


def run(*command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def can_fuzz():
    """Clang's run-time libraries are a package of their own."""
    os.makedirs(BUILD, exist_ok=True)
    source = os.path.join(BUILD, "probe.cpp")
    with open(source, "w", encoding="ascii") as file:
        file.write('#include <cstddef>\nextern "C" int LLVMFuzzerTestOneInput(const unsigned char*, std::size_t) { return 0; }\n')
    return run(os.environ["CLANG"], "-fsanitize=fuzzer,address,undefined", source, "-o", source + ".out").returncode == 0


def main():
    if not can_fuzz():
        print(f"skipped: {os.environ['CLANG']} cannot link libFuzzer and the sanitizers")
        return 77
    library = ["-D", f"DDPRUN_BUILD_LIBRARY={os.environ['LIBRARY']}", "-D", f"DDPRUN_LIBTORCH={os.environ['LIBTORCH']}"]
    configured = run("cmake", "--preset", "fuzz", "-B", BUILD, "-D", f"CMAKE_CXX_COMPILER={os.environ['CLANG']}", *library,
                     cwd=SOURCE)  # fmt: skip
    programs = [program + target for target in TARGETS for program in ("fuzz_", "fuzz_driver_")]
    built = configured if configured.returncode else run("cmake", "--build", BUILD, "--target", *programs)
    if built.returncode:
        sys.stdout.buffer.write(built.stdout)
        return 1
    failed = 0
    for target in TARGETS:
        folder = os.path.join(BUILD, "corpus", target)
        shutil.rmtree(folder, ignore_errors=True)
        dictionary = os.path.join(BUILD, "corpus", target + ".dict")
        run(os.path.join(BUILD, "bin", "fuzz_driver_" + target), "--seeds", folder, check=True)
        run(os.path.join(BUILD, "bin", "fuzz_driver_" + target), "--dictionary", dictionary, check=True)
        words = [f"-dict={dictionary}"] if os.path.getsize(dictionary) else []  # libFuzzer refuses an empty file
        fuzzer = run(os.path.join(BUILD, "bin", "fuzz_" + target), f"-max_total_time={SECONDS}", "-rss_limit_mb=2048",
                     "-malloc_limit_mb=512", "-timeout=120", "-print_final_stats=1", *words, folder, cwd=BUILD)  # fmt: skip
        lines = fuzzer.stdout.decode(errors="replace").splitlines()
        executed = [line.split()[-1] for line in lines if "number_of_executed_units" in line]
        print(f"{target}: {executed[0] if executed else '?'} inputs in {SECONDS} s, status {fuzzer.returncode}", flush=True)
        if fuzzer.returncode:
            print("\n".join(lines[-60:]))
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
