// One rank of a job that trains a transformer and counts its memory: fsdp_memory_program MODE LAYERS WIDTH LIMIT
// RESULT.
//
// MODE: "sharded", or "replicated" by DistributedDataParallel. LIMIT: how many times the parameters' bytes the process
// may allocate once it has joined its job; 0: no limit. Writes what it counted to RESULT.RANK; ends with status 3 when
// the memory does not suffice for the construction of the model and its wrapper, 4 when not for the training.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/manual_seed.h>
#include <ddprun/comm/report.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/fsdp/deferred_init.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/optimizers.h>

#include "examples/models/transformer.h"
#include "tests/fsdp/has_memory.h"
#include "tests/support/counting_allocator.h"

namespace fsdp_memory_program {
namespace {

using ddp::test::CountingAllocator;
using nlohmann::json;

constexpr int kConstructionFails = 3, kTrainingFails = 4, kSteps = 3;

int64_t kilobytes_of_status(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
  }
  throw std::runtime_error("/proc/self/status has no " + name);
}

// Private memory that may be written: that of libraries and thread stacks is there already, and shared memory, in which
// ranks communicate, is not part of it.
void limit_further_memory(int64_t bytes) {
  const auto limit = static_cast<rlim_t>(kilobytes_of_status("VmData") * 1024 + bytes);
  const rlimit both{.rlim_cur = limit, .rlim_max = limit};
  if (setrlimit(RLIMIT_DATA, &both) != 0) throw std::system_error(errno, std::generic_category(), "setrlimit");
}

bool is_out_of_memory(const std::exception& error) {
  const std::string text = error.what();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr || text.find("bad_alloc") != std::string::npos ||
         text.find("allocate memory") != std::string::npos;
}

int64_t numel_of(const models::TransformerOptions& options) {
  const int64_t width = options.width;
  const int64_t block = 12 * width * width + 13 * width;
  return options.layers * block + (2 * options.vocabulary + options.context + 2) * width;
}

int64_t bytes_of(const torch::nn::Module& module) {
  int64_t bytes = 0;
  for (const at::Tensor& parameter : module.parameters()) bytes += static_cast<int64_t>(parameter.nbytes());
  return bytes;
}

at::Tensor loss_of(auto& model, int64_t step) {
  const at::Tensor text = (at::arange(32, at::kLong) * 7 + step).remainder(256).view({1, 32});
  return torch::nn::functional::cross_entropy(model(text).flatten(0, 1), text.flatten());
}

void train(auto& model, ddp::optim::AdamW& optimizer) {
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model, step).backward();
    optimizer.step();
  }
}

// The memory of whole parameters, at each allocation the largest sum so far.
class Gathered {
 public:
  explicit Gathered(const torch::nn::Module& net) : parameters_(net.parameters()) {
    CountingAllocator::on_allocation = [this] { look(); };
  }
  ~Gathered() { CountingAllocator::on_allocation = {}; }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;
  int64_t most() const { return most_; }

 private:
  void look() {
    int64_t bytes = 0;
    for (const at::Tensor& parameter : parameters_) {
      if (is_there(parameter)) bytes += static_cast<int64_t>(parameter.nbytes());
    }
    most_ = std::max(most_, bytes);
  }

  // Without an exception for each that is not, where LibTorch can say so.
  static bool is_there(const at::Tensor& parameter) {
    const auto has_pointer = [&](auto& storage) {
      if constexpr (requires { storage._mutable_data_ptr_no_checks(); }) {
        return storage._mutable_data_ptr_no_checks().get() != nullptr;
      } else {
        return ddp::test::has_memory(parameter);
      }
    };
    return has_pointer(*parameter.storage().unsafeGetStorageImpl());
  }

  std::vector<at::Tensor> parameters_;
  int64_t most_ = 0;
};

json run_sharded(const models::TransformerOptions& options, const ddp::GroupHandle& group, int& fails_with) {
  json result;
  CountingAllocator::reset_most();
  const int64_t before = CountingAllocator::live();
  models::Transformer net = ddp::deferred_init([&] { return models::Transformer(options); });
  auto model = ddp::fully_shard(net, group, {.units = {ddp::each<models::TransformerBlock>()}});
  result["most in construction"] = CountingAllocator::most() - before;
  ddp::optim::AdamW optimizer(model->parameters(), ddp::optim::AdamWOptions(1e-3));
  fails_with = kTrainingFails;
  result["unit"] = options.layers == 0 ? 0 : bytes_of(*net->blocks.front());
  result["root"] = bytes_of(*net) - options.layers * bytes_of(*net->blocks.front());
  const Gathered gathered(*net);
  train(model, optimizer);
  result["gathered"] = gathered.most();
  result["most in training"] = CountingAllocator::most() - before;
  result["persistent"] = CountingAllocator::live() - before;
  return result;
}

json run_replicated(const models::TransformerOptions& options, const ddp::GroupHandle& group, int& fails_with) {
  models::Transformer net(options);
  ddp::DistributedDataParallel model(net, group);
  fails_with = kTrainingFails;
  ddp::optim::AdamW optimizer(net->parameters(), ddp::optim::AdamWOptions(1e-3));
  train(model, optimizer);
  return {{"persistent", CountingAllocator::live()}};
}

int run(const std::vector<std::string>& arguments) {
  ddp::test::count_allocations();
  at::set_num_threads(1);
  models::TransformerOptions options;
  options.layers = std::stoll(arguments[1]);
  options.width = std::stoll(arguments[2]);
  options.heads = options.width / 32;
  options.context = 32;
  const ddp::ProcessGroup group = ddp::init_process_group();
  ddp::manual_seed(3, group);
  const int64_t bytes = numel_of(options) * static_cast<int64_t>(sizeof(float));
  const double limit = std::stod(arguments[3]);
  int fails_with = kConstructionFails;
  try {
    ddp::barrier(group);
    if (limit > 0) limit_further_memory(static_cast<int64_t>(limit * static_cast<double>(bytes)));
    json result = arguments[0] == "sharded" ? run_sharded(options, group, fails_with)
                                            : run_replicated(options, group, fails_with);
    result["parameters"] = bytes;
    result["ranks"] = group.size();
    std::ofstream(arguments[4] + "." + std::to_string(group.rank())) << result;
    return 0;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    std::fprintf(stderr, "%s\n", error.what());
    return fails_with;
  }
}

}  // namespace
}  // namespace fsdp_memory_program

int main(int argc, char** argv) try {
  if (argc != 6) throw std::invalid_argument("five arguments are needed");
  return fsdp_memory_program::run({argv + 1, argv + argc});
} catch (const std::exception& error) {
  return ddp::report(error);
}
