// The detector detects: with any one wait for an event, or any one record_stream(), left out of the library, something
// here says so.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/device_mesh.h>
#include <ddprun/comm/spawn.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/image_datasets.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/data_parallel.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/samplers/sequential_sampler.h>

#include "checkpoint/host_snapshot.h"
#include "tests/support/catch.h"
#include "tests/support/device/device.h"
#include "tests/support/gradient_buckets.h"

namespace ddp {
namespace {

using Catch::Matchers::IsEmpty;
namespace device = test::device;

const c10::Device kFirst = device::device_at(0);

struct ScaleImpl : torch::nn::Cloneable<ScaleImpl> {
  ScaleImpl() { reset(); }
  void reset() override { factor = register_parameter("factor", at::ones({3})); }
  at::Tensor forward(const at::Tensor& x) { return x * factor; }
  at::Tensor factor;
};
TORCH_MODULE(Scale);

c10::Stream current(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Computes on a stream of its own, or half of it: gradients of its parameter come from there, or from both.
struct AsideImpl : torch::nn::Cloneable<AsideImpl> {
  AsideImpl() { reset(); }
  void reset() override { factor = register_parameter("factor", at::ones({3})); }
  at::Tensor forward(const at::Tensor& x) {
    const c10::Stream own = current(x.device());
    const c10::Stream other = device::new_stream(x.device().index());
    device::order(own, other);
    at::Tensor half;
    {
      const c10::StreamGuard guard(other);
      half = x * factor;
      x.record_stream(other);
    }
    device::order(other, own);
    half.record_stream(own);
    return is_half ? half + x * factor : half;
  }
  bool is_half = false;
  at::Tensor factor;
};
TORCH_MODULE(Aside);

std::vector<c10::Stream> own_streams() {
  std::vector<c10::Stream> streams;
  for (int index = 0; index < device::count(); ++index) streams.push_back(device::new_stream(index));
  return streams;
}

void load_batches() {
  const SyntheticImages images({.size = 12, .channels = 1, .height = 4, .width = 4, .classes = 3});
  SequentialSampler sampler(images.size());
  DeviceLoader loader(images, sampler, kFirst, {.batch_size = 4});
  for (auto& batch : loader) {
    batch.data.add(1);
    batch.target.add(1);
  }
}

// One place for all cases: not each of them needs all that happens there.
[[gnu::noinline]] TensorMap copy_of(HostSnapshot& snapshot, at::Tensor weight, bool is_kept) {
  TensorMap copied = snapshot.take("model", {{"weight", weight}});
  if (is_kept) {
    weight.add_(1);
  } else {
    weight.reset();
  }
  snapshot.wait();
  return copied;
}

void snapshot() {
  HostSnapshot snapshot;
  at::Tensor weight = at::ones({4}, at::TensorOptions(kFirst)).mul(3);
  at::Tensor busy = at::ones({256, 256}, at::TensorOptions(kFirst));
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 10; ++i) busy = busy.mm(busy).clamp(0, 1);  // the copy comes late
    const TensorMap copied = copy_of(snapshot, weight, /*is_kept=*/true);
    if (copied.at("weight").sum().item<float>() != 4.F * static_cast<float>(3 + step)) throw std::runtime_error("torn");
  }
}

// A tensor of another stream than the current one, which may use it.
at::Tensor made_elsewhere() {
  const c10::Stream other = device::new_stream(0);
  at::Tensor tensor;
  {
    const c10::StreamGuard guard(other);
    tensor = at::ones({4}, at::TensorOptions(kFirst));
  }
  device::order(other, current(kFirst));
  return tensor;
}

void snapshot_of_what_goes() {
  HostSnapshot snapshot;
  copy_of(snapshot, made_elsewhere(), /*is_kept=*/false);
}

void data_parallel() {
  Scale net;
  net->to(kFirst);
  DataParallel<Scale> model(net);
  for (int step = 0; step < 2; ++step) {
    const at::Tensor x = at::arange(24, at::TensorOptions().dtype(at::kFloat)).view({8, 3}).to(kFirst).mul(2);
    const at::Tensor sum = model(x).sum();
    {
      // Backward under other streams than forward's.
      const c10::MultiStreamGuard others(own_streams());
      sum.backward();
      net->factor.grad().mul(2);
    }
    device::drain();
    net->zero_grad();
  }
}

// With parameters whose places in backward are of another stream than the forward.
void data_parallel_aside(bool is_half) {
  Aside net;
  net->is_half = is_half;
  net->to(kFirst);
  DataParallel<Aside> model(net, {.device_ids = {0, 1, 2}});
  const at::Tensor x = at::arange(27, at::TensorOptions().dtype(at::kFloat)).view({9, 3}).to(kFirst).mul(2);
  const at::Tensor first = model(x);  // its graph keeps those places
  device::drain();
  for (int step = 0; step < 2; ++step) {
    const c10::MultiStreamGuard others(own_streams());
    model(x).sum().backward();
    net->factor.grad().mul(2);
    device::drain();
  }
}

void on_one_rank(const std::function<void(const GroupHandle&)>& body) {
  spawn(1,
        [&](const GroupHandle& group) {
          const c10::StreamGuard own(device::new_stream(0));
          body(group);
        },
        {.backend = "cuda:nccl", .devices = {kFirst}});
}

struct UnitsImpl : torch::nn::Module {
  UnitsImpl() : a(register_module("a", Scale())), b(register_module("b", Scale())) {
    register_module("spare", Scale());
  }
  at::Tensor forward(const at::Tensor& x) { return b(a(x)); }
  Scale a, b;
};
TORCH_MODULE(Units);

// One unit is gathered in advance and not used.
void fully_sharded(bool offloads) {
  on_one_rank([&](const GroupHandle& group) {
    FullyShardOptions options{.units = {each<Scale>()}};
    if (offloads) options.offload = CpuOffload{};
    Units net;
    net->to(kFirst);
    auto model = fully_shard(net, group, options);
    model->unit("a").set_modules_to_forward_prefetch({"spare"});
    const at::Tensor x = at::ones({5, 3}, at::TensorOptions(kFirst));
    at::Tensor busy = at::ones({256, 256}, at::TensorOptions(kFirst));
    for (int step = 0; step < 3; ++step) {
      model->zero_grad();
      model(x.mul(2)).sum().backward();
      busy = busy.mm(busy).clamp(0, 1);  // what follows comes late
      const at::NoGradGuard no_grad;
      for (at::Tensor& shard : model->parameters()) shard.mul_(shard.grad().defined() ? shard.grad() : shard);
    }
  });
}

// The program changes shards in host memory right after a forward, and after a backward that reduces nothing: copies to
// the device, which come late, must have read them.
void shards_change_at_once(bool in_backward) {
  on_one_rank([&](const GroupHandle& group) {
    Units net;
    net->to(kFirst);
    auto model = fully_shard(net, group, {.units = {each<Scale>()}, .offload = CpuOffload{}});
    model->set_requires_gradient_sync(false);
    at::Tensor busy = at::ones({256, 256}, at::TensorOptions(kFirst));
    const auto change = [&](double value) {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& shard : model->parameters()) shard.fill_(value);
    };
    for (int step = 0; step < 2; ++step) {
      change(1);
      at::Tensor x = at::ones({5, 3}, at::TensorOptions(kFirst));
      x.set_requires_grad(in_backward);
      const auto keep_busy = [&] {
        for (int i = 0; i < 10; ++i) busy = busy.mm(busy).clamp(0, 1);
      };
      if (!in_backward) keep_busy();
      at::Tensor result = model(x).sum();
      if (in_backward) {
        keep_busy();
        result.backward();
        result = x.grad().sum();
      }
      change(7);
      if (result.item<float>() != 15) throw std::runtime_error("torn");
      model->zero_grad();
    }
  });
}

// Where nobody waits for it, what it has used is let go at once.
void use_hook(const std::function<CommHook(const GroupHandle&)>& make, int steps, bool is_awaited) {
  on_one_rank([&](const GroupHandle& group) {
    const CommHook hook = make(group);
    const std::vector<at::Tensor> parameters{at::ones({8, 6}, at::TensorOptions(kFirst)),
                                             at::ones({5}, at::TensorOptions(kFirst))};
    for (int step = 0; step < steps; ++step) {
      const at::Tensor buffer = at::ones({53}, at::TensorOptions(kFirst)).mul(step + 1);
      const TensorFuture future = test::start_hook(hook, buffer, parameters);
      if (!is_awaited) continue;
      future->waitAndThrow();
      buffer.sum();
    }
  });
}

void power_sgd(bool is_awaited) {
  use_hook(
      [](const GroupHandle& group) {
        return hooks::power_sgd(make_power_sgd_state(group, {.start_iteration = 2, .min_compression_rate = 1}));
      },
      5, is_awaited);
}

void compress(bool is_awaited) {
  use_hook([](const GroupHandle& group) { return hooks::fp16_compress(group); }, 3, is_awaited);
}

void collectives() {
  on_one_rank([](const GroupHandle& group) {
    const at::Tensor a = at::ones({3}, at::TensorOptions(kFirst));
    const at::Tensor b = at::ones({2}, at::TensorOptions(kFirst));
    auto sum = all_reduce_async(a, group);
    sum.wait();
    a.add(1);
    auto sums = all_reduce_coalesced_async({a, b}, group);
    sums.wait();
    b.add(1);
    auto rows = all_gather_async(a, group);
    rows.wait().add(1);
    auto sent = broadcast_async(b, 0, group);
    sent.wait();
    b.add(1);
  });
}

void wait_elsewhere() {
  on_one_rank([](const GroupHandle& group) {
    const at::Tensor a = at::ones({3}, at::TensorOptions(kFirst));
    const at::Tensor b = at::ones({2}, at::TensorOptions(kFirst));
    const at::Tensor c = at::ones({4}, at::TensorOptions(kFirst));
    auto sums = all_reduce_coalesced_async({a, b}, group);
    auto rows = all_gather_async(c, group);
    const c10::Stream other = device::new_stream(0);
    device::order(c10::impl::VirtualGuardImpl(kFirst.type()).getStream(kFirst), other);
    const c10::StreamGuard guard(other);
    sums.wait();
    rows.wait().add(1);
  });
}

void wait_for_what_goes() {
  on_one_rank([](const GroupHandle& group) {
    at::Tensor tensor = made_elsewhere();
    auto sum = all_reduce_async(tensor, group);
    const c10::StreamGuard guard(device::new_stream(0));
    sum.wait();
    tensor.add(1);
    tensor.reset();
  });
}

struct TwoUnitsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return second(first(x).tanh()).tanh(); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 6));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(6, 6));
};
TORCH_MODULE(TwoUnits);

// `replicas`: of two ranks each.
void shards(int replicas, const MixedPrecisionPolicy& policy) {
  std::vector<c10::Device> devices;
  for (int i = 0; i < 2 * replicas; ++i) devices.push_back(device::device_at(i));
  spawn(2 * replicas,
        [&](const GroupHandle& group) {
          const c10::StreamGuard own(device::new_stream(group.device().index()));
          TwoUnits net;
          net->to(group.device());
          const auto mesh = init_device_mesh(group, {replicas, 2}, {"replicate", "shard"});
          auto model = fully_shard(net, mesh, {.units = {each<torch::nn::Linear>()}, .policy = policy});
          optim::SGD optimizer(model->parameters(), 0.1);
          for (int step = 0; step < 2; ++step) {
            optimizer.zero_grad();
            model(at::ones({3, 6}, at::TensorOptions(group.device()))).sum().backward();
            model->clip_grad_norm_(1);
            optimizer.step();
          }
          for (const auto& item : model->named_parameters()) model->full_parameter(item.key()).cpu();
        },
        {.backend = "cuda:nccl", .devices = devices});
}

// What is wrong: faults of memory or streams, a wrong number, an exception.
std::vector<std::string> noticed(const std::function<void()>& work) {
  device::faults();
  std::string thrown;
  try {
    const c10::MultiStreamGuard streams(own_streams());
    work();
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  device::drain();
  std::vector<std::string> all = device::faults();
  if (!thrown.empty()) all.push_back(thrown);
  return all;
}

// What only the host's reading shows is not seen when the device happens to be early.
bool is_noticed(const std::function<void()>& work) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    device::set_schedule(seed);
    if (!noticed(work).empty()) return true;
  }
  return false;
}

TEST_CASE("Mutation: with any one of its waits for events or of its record_streams left out the library is caught") {
  struct Case {
    const char* name;
    std::function<void()> work;
    size_t least;  // places
  };
  const std::vector<Case> cases{
      {"loader", load_batches, 1},
      {"snapshot", snapshot, 3},
      {"snapshot of what goes", snapshot_of_what_goes, 1},
      {"DataParallel", data_parallel, 2},
      {"DataParallel aside", [] { data_parallel_aside(false); }, 2},
      {"DataParallel half aside", [] { data_parallel_aside(true); }, 2},
      {"fully_shard", [] { fully_sharded(false); }, 2},
      {"fully_shard offloaded", [] { fully_sharded(true); }, 1},
      {"shards that change after a forward", [] { shards_change_at_once(false); }, 1},
      {"shards that change after a backward", [] { shards_change_at_once(true); }, 1},
      {"PowerSGD", [] { power_sgd(true); }, 1},
      {"PowerSGD that nobody waits for", [] { power_sgd(false); }, 1},
      {"compression hook", [] { compress(true); }, 0},
      {"compression hook that nobody waits for", [] { compress(false); }, 1},
      {"collectives", collectives, 1},
      {"wait elsewhere", wait_elsewhere, 1},
      {"of elsewhere, waited for elsewhere", wait_for_what_goes, 1},
      {"shards", [] { shards(1, {}); }, 1},
      {"shards of replicas", [] { shards(2, {.param_dtype = at::kBFloat16}); }, 1},
  };
  std::set<std::string> met;
  std::set<std::string> caught;  // not every case needs every wait that it meets
  for (const Case& one : cases) {
    INFO(one.name);
    device::set_schedule(5);
    device::mutation::watch();
    UNSCOPED_INFO("nothing is left out");
    CHECK_THAT(noticed(one.work), IsEmpty());
    const std::vector<std::string> places = device::mutation::places();
    CHECK(places.size() >= one.least);
    for (const std::string& place : places) {
      met.insert(place);
      if (caught.contains(place)) continue;
      device::mutation::leave_out(place);
      if (is_noticed(one.work)) caught.insert(place);
    }
    device::mutation::stop();
  }
  const auto count_of = [&](const char* act) {
    return std::ranges::count_if(caught, [&](const std::string& place) { return place.starts_with(act); });
  };
  WARN(count_of("wait") << " waits and " << count_of("record_stream")
                        << " record_streams were left out, one at a time, and noticed");
  CHECK(caught == met);
  CHECK(count_of("wait") >= 8);
  CHECK(count_of("record_stream") >= 3);
}

}  // namespace
}  // namespace ddp
