// Writes a run with everything in it, by formulas that tensorboard_test.py repeats: `program FOLDER [kill]`. With
// `kill` it ends by SIGKILL after a flush and some more events.
#include <signal.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include <ddprun/monitor/summary_writer.h>

namespace {

void write_images(ddp::SummaryWriter& writer) {
  for (int64_t channels = 1; channels <= 4; ++channels) {
    std::vector<uint8_t> pixels;
    for (int64_t i = 0; i < 11 * channels * 5 * 7; ++i) pixels.push_back(static_cast<uint8_t>(i * 31 + i / 13));
    writer.add_images(
        "image/" + std::to_string(channels),
        ddp::ImagesView<uint8_t>{.pixels = pixels, .count = 11, .channels = channels, .height = 5, .width = 7},
        channels);
  }
  std::vector<float> floats;
  for (int i = 0; i < 3 * 6 * 4; ++i) floats.push_back(static_cast<float>(i) / 50.0F - 0.2F);
  writer.add_images("image/float", ddp::ImagesView<float>{.pixels = floats, .height = 6, .width = 4}, 9);
}

void write_all(ddp::SummaryWriter& writer) {
  for (int64_t step = 0; step < 1000; ++step) {
    writer.add_scalar("loss/train",
                      std::sin(static_cast<double>(step) * 0.01) * std::exp(static_cast<double>(step % 50)),
                      step * 1'000'003);
  }
  writer.add_scalar("nan", std::nan(""), -5);
  writer.add_scalar("infinite", INFINITY, 1);
  writer.add_scalar(
      "gr\xC3\xB6\xC3\x9F"
      "e \xFF",
      1, 1);
  for (int64_t step = 0; step < 20; ++step) {
    writer.add_scalars("both", {{"train", 0.5 * static_cast<double>(step)}, {"test", -1.0 * static_cast<double>(step)}},
                       step);
  }
  write_images(writer);
  for (int64_t step = 0; step < 10; ++step) {
    std::vector<double> values;
    for (int i = 0; i < 500; ++i) values.push_back(std::ldexp(i % 7 - 3.0, static_cast<int>(step) - i % 40));
    writer.add_histogram("weights", std::span<const double>(values), step);
  }
  for (int64_t step = 0; step < 15; ++step)
    writer.add_text("notes", "# line " + std::to_string(step) + "\n\xC3\xA9 *x*", step);
  writer.add_hparams({{"lr", 0.125}, {"batch", int64_t{64}}, {"nesterov", true}, {"optimizer", std::string("sgd")}},
                     {{"hparam/accuracy", 0.75}, {"dice", 0.5}, {"car's \x1B IoU", 0.5}, {"both", 0.25}});
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || argv[1][0] == '-') {  // what was meant for a test program must not become a folder
    std::fprintf(stderr, "usage: %s FOLDER [kill | PURGE_STEP]\n", argv[0]);
    return 2;
  }
  const bool kill = argc > 2 && std::strcmp(argv[2], "kill") == 0;
  if (argc > 2 && !kill) {  // a purge step
    ddp::SummaryWriter(argv[1], {.purge_step = std::stoll(argv[2])}).add_scalar("resumed", 7, std::stoll(argv[2]));
    return 0;
  }
  ddp::SummaryWriter writer(argv[1], {.flush_interval = std::chrono::hours(1)});
  write_all(writer);
  for (int64_t step = 0; step < 100; ++step) writer.add_scalar("resumed", static_cast<double>(step), step);
  writer.flush();
  if (kill) {
    for (int64_t step = 0; step < 1000; ++step) writer.add_scalar("lost", 1, step);
    ::raise(SIGKILL);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
