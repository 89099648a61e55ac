// A program with narrow headers that links libraries of every layer, from training down to base, and the image libraries.
#include <ATen/ops/ones.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/report.h>
#include <ddprun/data/image.h>
#include <ddprun/training/start_run.h>
#include <ddprun/version.h>

int main() try {
  const std::string pixel = "P6 1 1 255\n\1\2\3";
  if (ddp::decode_image({pixel.begin(), pixel.end()}, "pixel.ppm").width != 1) throw std::runtime_error("no picture");
  auto group = ddp::init_process_group();
  at::Tensor sum = at::ones({1});
  ddp::all_reduce(sum, group);
  ddp::print_on_main(group, "ddprun " DDPRUN_VERSION_STRING ": ", sum.item<float>(), " of ",
                     ddp::describe_job(group, /*batch_size=*/1));
} catch (const std::exception& error) {
  return ddp::report(error);
}
