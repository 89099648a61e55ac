// Continues the runs of crossing_test.py: crossing_program CASES FOLDER SOURCE TARGET PARTS. CASES and PARTS are JSON
// lists; case number i is loaded from FOLDER/<i>.SOURCE unless SOURCE is "-", takes the steps from PARTS[i][0] to
// before PARTS[i][1], and is saved as FOLDER/<i>.TARGET, a .pt file that Python reads.
#include <torch/nn/module.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/tensor_files.h>
#include <ddprun/comm/process_group.h>

#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
#include "tests/optim/drawn_steps.h"

namespace {

using nlohmann::json;

struct Parameters : torch::nn::Module {
  explicit Parameters(const std::vector<at::Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i)
      register_parameter(std::string("p").append(std::to_string(i)), tensors[i]);
  }
};

void continue_case(const json& test, const std::string& source, const std::string& target, const json& part,
                   const ddp::ProcessGroup& group) {
  const auto parameters = ddp::test::drawn_parameters(test);
  const auto optimizer = ddp::test::make_drawn(test["optimizer"], test, parameters);
  const auto model = std::make_shared<Parameters>(parameters);
  if (!source.empty()) ddp::load_checkpoint(source, {.model = *model, .optimizer = *optimizer}, group);
  for (size_t step = part[0]; step < part[1].get<size_t>(); ++step) {
    ddp::test::take_drawn_step(test, step, parameters, *optimizer);
  }
  ddp::PtExtras extras;
  const auto state = ddp::module_state(*model);
  extras.optimizer_groups = ddp::save_optimizer_state(*optimizer, state, extras.optimizer);
  ddp::save_pt(target, state, extras);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) throw std::invalid_argument("5 arguments are needed");
  std::ifstream file(argv[1]);
  const auto cases = json::parse(file);
  const auto parts = json::parse(argv[5]);
  const auto group = ddp::init_process_group({.rank_info = ddp::RankInfo{}});
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string stem = std::string(argv[2]) + "/" + std::to_string(i) + ".";
    const std::string source = std::string(argv[3]) == "-" ? "" : stem + argv[3];
    continue_case(cases[i], source, stem + argv[4], parts[i], group);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
