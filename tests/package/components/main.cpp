// Watches a loop, without LibTorch.
#include <monitor/progress_bar.h>
#include <monitor/summary_writer.h>

int main(int, char** argv) {
  ddp::SummaryWriter writer(argv[1]);
  ddp::ProgressBar bar(3);
  for (int step = 1; step <= 3; ++step) {
    writer.add_scalar("loss", 1.0 / step, step);
    bar.advance();
  }
  return 0;
}
