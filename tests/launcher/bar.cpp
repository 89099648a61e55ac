// A rank with the library's progress bars, on every rank: `bar STEPS [FILE]`. It first prints whether it has a
// terminal. In the first epoch the steps' bar stays until FILE exists.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <ddprun/monitor/progress_bar.h>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int steps = std::atoi(argv[1]);
  ddp::ProgressBar outer(2, {.description = "epochs", .rank = 0, .line_interval = std::chrono::milliseconds(50)});
  outer.print(::isatty(STDERR_FILENO) == 1 ? "at a terminal" : "no terminal");
  for (int epoch = 0; epoch < 2; ++epoch) {
    ddp::ProgressBar inner(outer, steps, {.description = "steps"});
    for (int step = 0; step < steps; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      inner.advance();
    }
    while (epoch == 0 && argc > 2 && ::access(argv[2], F_OK) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (epoch == 0) inner.print("half of it");
    inner.close();
    outer.advance();
  }
}
