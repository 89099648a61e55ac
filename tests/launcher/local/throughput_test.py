"""How fast prefixed output passes, next to the same pipeline without ddprun; nothing lost, little memory."""

import re
import subprocess
import time

from harness import LauncherTest, main, wait_until

BYTES = 400_000_000  # of each of two ranks
# With prefixes ddprun reads, splits and writes each byte once more than cat does.
ALLOWED_RATIO = 4.0
ATTEMPTS = 3  # others may use the machine


def lines(width):
    """A program that writes BYTES in lines of `width` bytes, newline included."""
    return ("sh", "-c", f"yes {'x' * (width - 1)} | head -c {BYTES}")


class Throughput(LauncherTest):
    def plain(self, width):
        """Seconds of two such programs into one reader."""
        program = " ".join(f"'{word}'" for word in lines(width))
        begin = time.monotonic()
        out = subprocess.run(["sh", "-c", f"{{ {program} & {program}; wait; }} | wc -c"], capture_output=True, check=True)
        self.assertEqual(int(out.stdout), 2 * BYTES)
        return time.monotonic() - begin

    def prefixed(self, width):
        """Seconds under ddprun, and its peak memory in KiB."""
        begin = time.monotonic()
        counter = subprocess.Popen(["wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(counter.stdout.close)
        job = self.start("-n", "2", *lines(width), stdout=counter.stdin, environment={"OMP_NUM_THREADS": "1"})
        counter.stdin.close()
        supervisor = job.supervisor()
        peak = 0

        def is_over():
            nonlocal peak
            try:
                with open(f"/proc/{supervisor}/status", encoding="ascii") as file:
                    found = re.search(r"VmHWM:\s+(\d+)", file.read())
                peak = max(peak, int(found.group(1)) if found else 0)
            except (FileNotFoundError, ProcessLookupError):
                pass
            return job.process.poll() is not None

        wait_until(is_over, "ddprun's end", patience=120)
        seconds = time.monotonic() - begin
        counter.wait(20)
        self.assertEqual(job.process.returncode, 0)
        count = 2 * BYTES // width
        self.assertEqual(int(counter.stdout.read()), count * (width + len("[0] ")))
        self.assertGreater(peak, 0)
        self.assertLess(peak, 32 << 10)
        return seconds

    def check(self, width):
        ratios = []
        for _ in range(ATTEMPTS):
            plain = self.plain(width)
            seconds = self.prefixed(width)
            ratios.append(seconds / plain)
            print(f"{width}-byte lines: {2 * BYTES / seconds / 1e6:.0f} MB/s, plain {2 * BYTES / plain / 1e6:.0f} MB/s")
            if ratios[-1] < ALLOWED_RATIO:
                return
        self.fail(f"{width}-byte lines took {ratios} times as long as without ddprun")

    def test_lines_of_80_bytes(self):
        self.check(80)

    def test_lines_of_16_bytes(self):
        self.check(16)


if __name__ == "__main__":
    main()
