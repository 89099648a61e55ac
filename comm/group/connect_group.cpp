#include "comm/group/connect_group.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/debug.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>
#include <utility>

#include "comm/backends/backend_types.h"
#include "comm/group/first_calls.h"

namespace ddp::detail {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;
using Label = c10d::ProcessGroup::BackendType;

// c10d keeps one backend for each label, so two custom backends need different labels. MPI's label is free, since
// LibTorch's builds have no MPI.
Label label_of_cuda(const BackendMap& backends) {
  const Label label = type_of(*backends.cuda).c10d_type;
  const bool is_taken = backends.cpu != nullptr && type_of(*backends.cpu).c10d_type == label;
  return is_taken ? c10d::ProcessGroup::MPI : label;
}

// The label of the backend that c10d uses for a call without tensors.
Label default_label(const BackendMap& backends) {
  const bool is_cuda = backends.cpu == nullptr || backends.with(&BackendTraits::needs_cuda) != nullptr;
  return is_cuda && backends.cuda != backends.cpu ? label_of_cuda(backends) : type_of(*backends.cpu).c10d_type;
}

const BackendTraits* serving(const BackendTraits& asked, const c10d::Backend& made) {
  if (!type_of(asked).may_choose_another) return &asked;
  const BackendList known = known_backends();
  const auto found = std::ranges::find(known, made.getBackendName(), &BackendTraits::name);
  return found == known.end() ? &asked : *found;
}

}  // namespace

// The order matters: setBackend() passes the bound device on, and NCCL then connects eagerly on that device.
ConnectedGroup connect_group(const GroupPlan& plan) {
  const BackendMap& backends = plan.backends;
  const auto store = c10::make_intrusive<c10d::PrefixStore>(plan.name + "/", plan.store);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, plan.info.rank, plan.info.world_size);
  group->setDefaultBackend(default_label(backends));
  if (plan.device.is_cuda()) group->setBoundDeviceId(plan.device);

  const auto make = [&](const BackendTraits& backend, const std::string& prefix) {
    return type_of(backend).make(plan, c10::make_intrusive<c10d::PrefixStore>(prefix + "/", store));
  };
  BackendMap serving_backends = backends;
  if (backends.cpu != nullptr) {
    const Label label = type_of(*backends.cpu).c10d_type;
    const Backend on_cpu = make(*backends.cpu, "cpu");
    group->setBackend(c10::kCPU, label, on_cpu);
    serving_backends.cpu = serving(*backends.cpu, *on_cpu);
    if (backends.cuda == backends.cpu) group->setBackend(c10::kCUDA, label, on_cpu);
  }
  if (backends.cuda != nullptr && backends.cuda != backends.cpu) {
    group->setBackend(c10::kCUDA, label_of_cuda(backends), make(*backends.cuda, "cuda"));
  }
  group->setGroupName(plan.name);
  group->setGroupDesc(plan.description);
  if (plan.device.is_cuda() && backends.cuda != nullptr && backends.cuda->needs_cuda) {
    group->getBackend(c10::kCUDA)->eagerConnectSingleDevice(plan.device);
  }
  return {.group = std::move(group), .backends = serving_backends};
}

// gloo writes to sockets whose peer may have exited. Without this, SIGPIPE would kill the rank, without a message, when
// another rank fails. Python ignores the signal in every program. Here, a program's own handler is kept.
void prepare_process() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
  c10d::setDebugLevelFromEnvironment();
  make_first_calls();
}

void check_timeout(const RankInfo& info, const char* operation, std::chrono::milliseconds timeout) {
  if (timeout.count() > 0) return;
  throw std::invalid_argument(who(info) + ": " + operation + ": expected a timeout above 0, got " +
                              std::to_string(timeout.count()) + " ms");
}

void check_kind(const std::string& subject, c10::Device device) {
  if (device.is_cpu() || device.is_cuda()) return;
  throw std::invalid_argument(subject + ": expected a device of kind 'cpu' or 'cuda', got '" + device.str() + "'");
}

void bind_device(c10::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
}

}  // namespace ddp::detail
