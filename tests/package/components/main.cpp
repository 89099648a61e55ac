// Watches a loop, without LibTorch and without a word about ranks.
#include <cstdio>
#include <exception>

#include <ddprun/monitor/progress_bar.h>
#include <ddprun/monitor/summary_writer.h>

int main(int, char** argv) try {
  ddp::SummaryWriter writer(argv[1]);
  ddp::ProgressBar bar(3);
  for (int step = 1; step <= 3; ++step) {
    writer.add_scalar("loss", 1.0 / step, step);
    bar.advance();
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
