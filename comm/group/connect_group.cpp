#include "comm/group/connect_group.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <torch/csrc/distributed/c10d/debug.h>

#include <csignal>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/group/cuda_plugin.h"
#include "comm/group/local_backend.h"

namespace ddp::detail {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;

// Runs `make` in a thread of its own, which is left behind when it takes longer.
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
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  });
}

Backend make_backend(const std::string& name, const GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store) {
  if (name == "local") return make_local_backend();
  if (name == "nccl") {
    return require_cuda(plan.info, "NCCL")
        .make_nccl(store, {.rank = plan.info.rank,
                           .size = plan.info.world_size,
                           .timeout = plan.timeout,
                           .group_name = plan.name,
                           .description = plan.description,
                           .members = plan.members});
  }
  Backend gloo = make_gloo(plan, store);
  return plan.wrapper ? plan.wrapper(std::move(gloo)) : gloo;
}

// With TORCH_DISTRIBUTED_DEBUG=DETAIL all ranks compare what they are about to do before each collective, over a gloo
// group of its own with torch.distributed's keys; a mismatch is an error that names both collectives.
Backend with_checks(Backend backend, const GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store) {
  if (c10d::debug_level() != c10d::DebugLevel::Detail) return backend;
  const auto helper_store = c10::make_intrusive<c10d::PrefixStore>("pg_wrapper:" + plan.name, store);
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, make_gloo(plan, helper_store));
}

c10d::ProcessGroup::BackendType backend_type(const std::string& name, const GroupPlan& plan) {
  if (name == "nccl") return c10d::ProcessGroup::NCCL;
  if (name == "gloo" && !plan.wrapper) return c10d::ProcessGroup::GLOO;
  return c10d::ProcessGroup::CUSTOM;
}

}  // namespace

// setBackend() hands on the bound device, and NCCL connects eagerly to it: the order matters.
c10::intrusive_ptr<c10d::ProcessGroup> connect_group(const GroupPlan& plan) {
  const BackendMap& backends = plan.backends;
  const auto store = c10::make_intrusive<c10d::PrefixStore>(plan.name + "/", plan.store);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, plan.info.rank, plan.info.world_size);
  group->setDefaultBackend(backends.uses("nccl")
                               ? c10d::ProcessGroup::NCCL
                               : backend_type(backends.cpu.empty() ? backends.cuda : backends.cpu, plan));
  if (plan.device.is_cuda()) group->setBoundDeviceId(plan.device);

  const auto add = [&](c10::DeviceType type, const std::string& name, const std::string& prefix) {
    const auto backend_store = c10::make_intrusive<c10d::PrefixStore>(prefix + "/", store);
    Backend backend = make_backend(name, plan, backend_store);
    if (name != "local" && !plan.wrapper) {
      backend->setSequenceNumberForGroup();
      backend = with_checks(backend, plan, backend_store);
    }
    group->setBackend(type, backend_type(name, plan), backend);
    return backend;
  };
  if (backends.cpu == backends.cuda) {  // one backend for both devices
    const Backend shared = add(c10::kCPU, backends.cpu, "cpu");
    group->setBackend(c10::kCUDA, backend_type(backends.cuda, plan), shared);
  } else {
    if (!backends.cpu.empty()) add(c10::kCPU, backends.cpu, "cpu");
    if (!backends.cuda.empty()) add(c10::kCUDA, backends.cuda, "cuda");
  }
  group->setGroupName(plan.name);
  group->setGroupDesc(plan.description);
  if (plan.device.is_cuda() && backends.cuda == "nccl") {
    group->getBackend(c10::kCUDA)->eagerConnectSingleDevice(plan.device);
  }
  return group;
}

// gloo writes to sockets whose peer may have gone: without this a rank would die of SIGPIPE, with no message, when
// another one fails. Python ignores the signal for every program; here a program's own choice is kept.
void prepare_process() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
  c10d::setDebugLevelFromEnvironment();
}

void check_timeout(const RankInfo& info, const char* operation, std::chrono::milliseconds timeout) {
  if (timeout.count() > 0) return;
  throw std::invalid_argument(who(info) + ": " + operation + ": expected a timeout above 0, got " +
                              std::to_string(timeout.count()) + " ms");
}

const CudaPlugin& require_cuda(const RankInfo& info, const std::string& purpose) {
  std::string why;
  const CudaPlugin* plugin = cuda_plugin(&why);
  if (plugin == nullptr) throw std::invalid_argument(who(info) + ": " + purpose + " needs CUDA: " + why);
  return *plugin;
}

void bind_device(c10::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
}

}  // namespace ddp::detail
