// Measures the minimum time to start N processes, with posix_spawn and waitpid in a loop: `spawn_loop N PROGRAM
// [ARGUMENT...]`. bench/launcher compares ddprun with it. It uses only the C library, because the comparison is with a
// C program.
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int count = atoi(argv[1]);
  for (int i = 0; i < count; ++i) {
    pid_t pid = 0;
    if (posix_spawn(&pid, argv[2], nullptr, nullptr, argv + 2, environ) != 0) return 1;
  }
  int failures = 0;
  int status = 0;
  while (wait(&status) > 0) failures += status != 0 ? 1 : 0;
  return failures == 0 ? 0 : 1;
}
