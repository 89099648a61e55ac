// fully_shard() over simulated devices: one result, whatever the order in which streams come, and no use of freed
// memory.
#include <ATen/Context.h>
#include <torch/nn/functional/loss.h>

#include <functional>
#include <optional>
#include <vector>

#include <ddprun/comm/device_mesh.h>
#include <ddprun/fsdp/fully_shard.h>

#include "tests/device/schedules.h"
#include "tests/device/training.h"
#include "tests/support/catch.h"
#include "tests/support/device/device.h"

namespace ddp::test {
namespace {

using Catch::Matchers::IsEmpty;
// Of each of the cases on each of two numbers of devices; the slow test takes more.
constexpr int kUsual = 4;

struct Case {
  const char* name = "";
  FullyShardOptions options{};
  bool is_hybrid = false;    // two replicas
  bool accumulates = false;  // over two backwards, of which the first reduces nothing
  bool clips = false;
};

/// Two steps; all parameters and buffers on the CPU.
template <typename Net>
State train_shards(const GroupHandle& group, const std::function<Net()>& construct, const Work& work, Case one) {
  Net net = make_net(construct);
  net->to(group.device());
  convert_sync_batchnorm(net, group);
  std::optional<DeviceMesh> mesh;
  if (one.is_hybrid) mesh.emplace(init_device_mesh(group, {2, group.size() / 2}, {"replicate", "shard"}));
  auto model = mesh ? fully_shard(net, *mesh, one.options) : fully_shard(net, group, one.options);
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(0.01));
  const int backwards = one.accumulates ? 2 : 1;
  for (int step = 0; step < work.steps; ++step) {
    optimizer.zero_grad();
    for (int i = 0; i < backwards; ++i) {
      if (one.accumulates) model->set_requires_gradient_sync(i + 1 == backwards);
      const int64_t salt = 1000 + step * 100 + i * 10 + group.rank();
      const at::Tensor data = numbers(work.input, salt).to(group.device());
      const at::Tensor target = at::randint(kClasses, {work.input[static_cast<size_t>(work.batch_dimension)]},
                                            at::detail::createCPUGenerator(static_cast<uint64_t>(salt)), at::kLong)
                                    .to(group.device());
      torch::nn::functional::cross_entropy(model(data).to(at::kFloat), target).backward();
    }
    if (one.clips) model->clip_grad_norm_(0.5);
    optimizer.step();
  }
  State state;
  for (const auto& item : model->named_parameters()) {
    state.push_back(model->full_parameter(item.key()).detach().cpu().clone());
  }
  for (const auto& item : net->named_buffers()) state.push_back(item.value().detach().cpu().clone());
  return state;
}

template <typename Net>
State state_of_rank_0(int size, bool on_devices, const std::function<Net()>& construct, const Work& work,
                      const Case& one) {
  const std::vector<c10::Device> on_cpu(static_cast<size_t>(size), c10::kCPU);
  return result_of_rank_0(on_devices ? simulated(size) : on_cpu, on_devices ? kOnDevices : "shm",
                          [&](const GroupHandle& group) { return train_shards<Net>(group, construct, work, one); });
}

std::vector<Case> cases(const std::vector<UnitSelector>& units) {
  return {
      {.name = "float", .options = {.units = units}},
      {.name = "kept after the forward", .options = {.units = units, .reshard_after_forward = false}, .clips = true},
      {.name = "16 bits, sums in 32",
       .options = {.units = units, .policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}},
       .accumulates = true},
      {.name = "half", .options = {.units = units, .policy = {.param_dtype = at::kHalf}}, .clips = true},
      {.name = "hybrid", .options = {.units = units}, .is_hybrid = true, .accumulates = true, .clips = true},
  };
}

class OnDevices {
 protected:
  OnDevices() {
    device::faults();
    at::globalContext().setUserEnabledMkldnn(false);
  }
  ~OnDevices() { device::drain(); }

  template <typename Net>
  void expect_one_result(const std::function<Net()>& construct, const Work& work,
                         const std::vector<UnitSelector>& units) {
    uint64_t seed = seed_before();
    for (const int size : {2, 4}) {
      for (const Case& one : cases(units)) {
        INFO(size << " devices, " << one.name);
        device::run_in_program_order();
        const State expected = state_of_rank_0<Net>(size, true, construct, work, one);
        REQUIRE(has_trained<Net>(expected, construct));
        for (int i = 0; i < schedules(kUsual); ++i) {
          INFO("schedule " << ++seed);
          device::set_schedule(seed);
          const State state = state_of_rank_0<Net>(size, true, construct, work, one);
          REQUIRE(same_bits(state, expected));
          REQUIRE_THAT(device::faults(), IsEmpty());
          device::drain();
        }
      }
    }
  }
};

const Work kSequences{.input = {5, 3, TransformerImpl::kWidth}, .batch_dimension = 1};
const Work kSmallImages{.input = {2, 3, 8, 8}};

Transformer make_transformer() {
  return Transformer();
}
RecomputedResNet18 make_recomputed_resnet() {
  return RecomputedResNet18();
}

TEST_CASE_METHOD(OnDevices, "FullyShard: a transformer has the CPU's bits on 2 and 4 devices") {
  for (const int size : {2, 4}) {
    for (const Case& one : cases({each<torch::nn::TransformerEncoderLayer>()})) {
      INFO(size << " devices, " << one.name);
      const State expected = state_of_rank_0<Transformer>(size, false, make_transformer, kSequences, one);
      device::set_schedule(1);
      CHECK(same_bits(state_of_rank_0<Transformer>(size, true, make_transformer, kSequences, one), expected));
    }
  }
}

TEST_CASE_METHOD(OnDevices, "FullyShard: a transformer has one result in every schedule") {
  expect_one_result<Transformer>(make_transformer, kSequences, {each<torch::nn::TransformerEncoderLayer>()});
}

TEST_CASE_METHOD(OnDevices, "FullyShard: regions with SyncBatchNorm have one result in every schedule") {
  expect_one_result<RecomputedResNet18>(make_recomputed_resnet, kSmallImages, {each<models::BasicBlock>()});
}

}  // namespace
}  // namespace ddp::test
