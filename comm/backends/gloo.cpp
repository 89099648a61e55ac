#include "comm/backends/gloo.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <torch/csrc/distributed/c10d/debug.h>

#include <future>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "comm/backends/all_reduce_backend.h"
#include "comm/backends/backend_types.h"
#include "comm/backends/pair_exchange.h"
#include "comm/backends/purpose_backend.h"
#include "comm/versions/sequence_numbers.h"

namespace ddp::detail {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;

class Gloo final : public c10d::ProcessGroupGloo, public AllReduceBackend, public PurposeBackend {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  // gloo refuses an empty buffer here, but it receives an empty message into a larger buffer.
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override {
    if (tensors.size() != 1 || tensors[0].numel() > 0) return ProcessGroupGloo::recvAnysource(tensors, tag);
    std::vector<at::Tensor> room{at::empty({1}, tensors[0].options())};
    return ProcessGroupGloo::recvAnysource(room, tag);
  }

  AllReduceTraits all_reduce_traits() const override {
    return {.in_wait = size_ == 2 ? AllReduceTraits::InWait::kSmallFloats : AllReduceTraits::InWait::kNone};
  }
  c10::intrusive_ptr<c10d::Work> all_reduce_in_wait(const at::Tensor& tensor) override {
    return pair_exchange_.start(*this, tensor);
  }

  // c10d numbers collectives from 0, and gloo delivers a message only to the collective of the same number. Collectives
  // with a purpose have numbers with other upper bits, so they cannot match other collectives that are in flight.
  void set_call_purpose(uint16_t purpose) override {
    constexpr int kPurposeShift = 16;
    collectiveCounter_ ^= static_cast<uint32_t>(purpose_ ^ purpose) << kPurposeShift;
    purpose_ = purpose;
  }

 private:
  PairExchange pair_exchange_;
  uint16_t purpose_ = 0;
};

// Runs `make` in its own thread. If it takes longer than `limit`, the thread is abandoned.
template <typename Result, typename Make>
Result within(std::chrono::milliseconds limit, Make make) {
  std::packaged_task<Result()> task(std::move(make));
  std::future<Result> made = task.get_future();
  std::thread thread(std::move(task));
  if (made.wait_for(limit) == std::future_status::ready) {
    thread.join();
    return made.get();
  }
  thread.detach();
  throw std::runtime_error("the ranks have not connected within " + std::to_string(limit.count()) + " ms");
}

}  // namespace

Backend make_gloo(const GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store) {
  auto options = plan.in_process ? c10d::ProcessGroupGloo::Options::create(plan.timeout)
                                 : c10d::ProcessGroupGloo::Options::create_default(plan.timeout);
  if (plan.in_process) options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->group_name = plan.name;
  options->group_desc = plan.description;
  options->global_ranks_in_group.assign(plan.members.begin(), plan.members.end());
  // gloo tries five times, each as long as the timeout, to connect to a rank that has stopped.
  constexpr auto kGrace = std::chrono::milliseconds(250);
  return within<Backend>(plan.timeout + kGrace, [store, options, rank = plan.info.rank, size = plan.info.world_size] {
    return c10::make_intrusive<Gloo>(store, rank, size, options);
  });
}

Backend with_checks(Backend backend, const GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store) {
  versions::begin_sequence_numbers(*backend);
  if (c10d::debug_level() != c10d::DebugLevel::Detail) return backend;
  const auto helper_store = c10::make_intrusive<c10d::PrefixStore>("pg_wrapper:" + plan.name, store);
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, make_gloo(plan, helper_store));
}

std::vector<std::string> gloo_dtypes() {
  std::vector<std::string> names;
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar, at::kByte, at::kBool, at::kInt, at::kLong}) {
    names.emplace_back(c10::toString(dtype));
  }
  return names;
}

BackendType gloo_backend() {
  return {.traits = {.name = "gloo",
                     .serves_cpu = true,
                     .serves_cuda = true,
                     .joins_python = true,
                     .receives_from_any = true,
                     .dtypes = gloo_dtypes()},
          .c10d_type = c10d::ProcessGroup::GLOO,
          .make = [](const GroupPlan& plan, const auto& store) {
            return with_checks(make_gloo(plan, store), plan, store);
          }};
}

}  // namespace ddp::detail
