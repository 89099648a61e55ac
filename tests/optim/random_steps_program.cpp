// Takes the steps of random_steps_test.py: random_steps_program CASES FOLDER. CASES is a JSON list; for each case
// FOLDER/<number>.bin gets the parameters and their states, in the order of the parameters and of the states' names.
// With DDPRUN_TEST_ON_DEVICES=1 they are on a simulated device.
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/optim/drawn_steps.h"

namespace {

using nlohmann::json;

void write_numbers(std::ofstream& out, const at::Tensor& tensor) {
  const auto contiguous = tensor.detach().cpu().contiguous();
  out.write(static_cast<const char*>(contiguous.const_data_ptr()), static_cast<std::streamsize>(contiguous.nbytes()));
}

void run_random_steps(const json& test, const std::string& path) {
  const auto parameters = ddp::test::drawn_parameters(test);
  const auto optimizer = ddp::test::make_drawn(test["optimizer"], test, parameters);
  for (size_t step = 0; step < test["steps"].size(); ++step) {
    ddp::test::take_drawn_step(test, step, parameters, *optimizer);
  }
  std::ofstream out(path, std::ios::binary);
  for (const auto& parameter : parameters) write_numbers(out, parameter);
  for (const auto& parameter : parameters) {
    for (const auto& [name, tensor] : optimizer->parameter_state(parameter)) write_numbers(out, tensor);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("2 arguments are needed");
  std::ifstream file(argv[1]);
  size_t number = 0;
  for (const auto& test : json::parse(file))
    run_random_steps(test, std::string(argv[2]) + "/" + std::to_string(number++) + ".bin");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
