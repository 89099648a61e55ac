#include "comm/process_group.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <torch/csrc/distributed/c10d/debug.h>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <utility>

#include "comm/cuda_plugin.h"
#include "comm/device_choice.h"
#include "comm/failure_handlers.h"
#include "comm/group_state.h"
#include "comm/local_backend.h"
#include "comm/malloc_tuning.h"
#include "comm/store.h"

namespace ddp {
namespace {

using detail::GroupState;
using Backend = c10::intrusive_ptr<c10d::Backend>;

int cuda_device_count() {
  return detail::cuda_plugin() == nullptr ? 0 : c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
}

BackendMap choose_backends(const ProcessGroupOptions& options, const RankInfo& info) {
  if (!options.backend.empty()) {
    const BackendMap map = parse_backend_map(options.backend);
    if (map.uses("local") && info.world_size > 1) {
      throw std::invalid_argument(who(info) + ": backend 'local' is for a single process");
    }
    return map;
  }
  if (info.world_size == 1) return {.cpu = "local", .cuda = "local"};
  if (cuda_device_count() > 0) return {.cpu = "gloo", .cuda = "nccl"};
  return {.cpu = "gloo", .cuda = "gloo"};
}

const detail::CudaPlugin& require_cuda(const RankInfo& info, const std::string& purpose) {
  std::string why;
  const detail::CudaPlugin* plugin = detail::cuda_plugin(&why);
  if (plugin == nullptr) throw std::invalid_argument(who(info) + ": " + purpose + " needs CUDA: " + why);
  return *plugin;
}

c10::Device choose_device(const ProcessGroupOptions& options, const BackendMap& backends, const RankInfo& info) {
  const bool wants_cuda = options.device
                              ? options.device->is_cuda()
                              : backends.cuda == "nccl" || (backends.cuda == "local" && cuda_device_count() > 0);
  if (!wants_cuda && backends.cuda == "nccl") {
    throw std::invalid_argument(who(info) + ": backend '" + backends.text() + "' needs a CUDA device, not '" +
                                options.device->str() + "'");
  }
  if (!wants_cuda) return options.device.value_or(c10::Device(c10::kCPU));
  require_cuda(info, options.device ? "device '" + options.device->str() + "'" : "backend '" + backends.text() + "'");
  if (options.device && options.device->has_index()) return *options.device;

  const auto visible = process_environment()("CUDA_VISIBLE_DEVICES");
  const DeviceChoice choice = choose_cuda_device(info.local_rank, info.local_world_size, cuda_device_count(),
                                                 backends.cuda == "nccl", visible ? "'" + *visible + "'" : "unset");
  if (!choice.notice.empty()) {
    std::fprintf(stderr, "ddprun: %s: %s\n", who(info).c_str(), choice.notice.c_str());
  }
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(choice.index)};
}

// Before the store and the group exist: the first CUDA call of a process makes a context on the current device.
void bind_device(c10::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
}

Backend make_backend(const std::string& name, const c10::intrusive_ptr<c10d::Store>& store, const RankInfo& info,
                     std::chrono::milliseconds timeout, const std::string& group_name) {
  if (name == "local") return detail::make_local_backend();
  if (name == "nccl")
    return require_cuda(info, "NCCL").make_nccl(store, info.rank, info.world_size, timeout, group_name);
  auto options = c10d::ProcessGroupGloo::Options::create_default(timeout);
  options->group_name = group_name;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, info.rank, info.world_size, options);
}

// With TORCH_DISTRIBUTED_DEBUG=DETAIL all ranks compare what they are about to do before each collective, over a gloo
// group of its own with torch.distributed's keys; a mismatch is an error that names both collectives.
Backend with_checks(Backend backend, const c10::intrusive_ptr<c10d::Store>& store, const RankInfo& info,
                    std::chrono::milliseconds timeout, const std::string& group_name) {
  if (c10d::debug_level() != c10d::DebugLevel::Detail) return backend;
  const auto helper_store = c10::make_intrusive<c10d::PrefixStore>("pg_wrapper:" + group_name, store);
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(backend,
                                                        make_backend("gloo", helper_store, info, timeout, group_name));
}

c10d::ProcessGroup::BackendType backend_type(const std::string& name) {
  if (name == "nccl") return c10d::ProcessGroup::NCCL;
  if (name == "gloo") return c10d::ProcessGroup::GLOO;
  return c10d::ProcessGroup::CUSTOM;
}

// The prefixes are torch.distributed's, byte for byte, so that ranks running Python meet the same keys. The order of
// calls matters as well: setBackend() hands on the bound device, and NCCL connects eagerly to it.
c10::intrusive_ptr<c10d::ProcessGroup> make_group(const c10::intrusive_ptr<c10d::Store>& root, int64_t generation,
                                                  const BackendMap& backends, const RankInfo& info, c10::Device device,
                                                  std::chrono::milliseconds timeout) {
  const std::string group_name = "0";
  const auto default_store = c10::make_intrusive<c10d::PrefixStore>(detail::group_prefix(generation), root);
  const auto store = c10::make_intrusive<c10d::PrefixStore>(group_name + "/", default_store);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, info.rank, info.world_size);
  group->setDefaultBackend(backends.uses("nccl") ? c10d::ProcessGroup::NCCL
                                                 : backend_type(backends.cpu.empty() ? backends.cuda : backends.cpu));
  if (device.is_cuda()) group->setBoundDeviceId(device);

  const auto add = [&](c10::DeviceType type, const std::string& name, const std::string& prefix) {
    const auto backend_store = c10::make_intrusive<c10d::PrefixStore>(prefix + "/", store);
    Backend backend = make_backend(name, backend_store, info, timeout, group_name);
    if (name != "local") {
      backend->setSequenceNumberForGroup();
      backend = with_checks(backend, backend_store, info, timeout, group_name);
    }
    group->setBackend(type, backend_type(name), backend);
    return backend;
  };
  if (backends.cpu == backends.cuda) {  // one backend for both devices
    const Backend shared = add(c10::kCPU, backends.cpu, "cpu");
    group->setBackend(c10::kCUDA, backend_type(backends.cuda), shared);
  } else {
    if (!backends.cpu.empty()) add(c10::kCPU, backends.cpu, "cpu");
    if (!backends.cuda.empty()) add(c10::kCUDA, backends.cuda, "cuda");
  }
  group->setGroupName(group_name);
  group->setGroupDesc("default_pg");
  if (device.is_cuda() && backends.cuda == "nccl") group->getBackend(c10::kCUDA)->eagerConnectSingleDevice(device);
  return group;
}

// gloo writes to sockets whose peer may have gone: without this a rank would die of SIGPIPE, with no message, when
// another one fails. Python ignores the signal for every program; here a program's own choice is kept.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

std::chrono::milliseconds default_timeout(const BackendMap& backends) {
  const bool nccl_only = backends.cpu.empty() && backends.cuda == "nccl";
  return std::chrono::minutes(nccl_only ? 10 : 30);
}

}  // namespace

ProcessGroup init_process_group(const ProcessGroupOptions& options) {
  tune_malloc();
  ignore_broken_pipes();
  c10d::setDebugLevelFromEnvironment();
  install_failure_handlers();
  const RankInfo info = options.rank_info ? *options.rank_info : rank_info_from_environment();
  const BackendMap backends = choose_backends(options, info);
  const c10::Device device = choose_device(options, backends, info);
  const auto timeout = options.timeout.value_or(default_timeout(backends));
  bind_device(device);
  if (backends.uses("nccl")) require_cuda(info, "NCCL").check_nccl_version();

  const detail::JobStore store = detail::join_store(info, backends, timeout);
  if (backends.uses("nccl")) {
    detail::claim_gpu(store, info, require_cuda(info, "NCCL").device_uuid(device.index()));
  }
  GroupState::Parts parts{.info = info,
                          .backends = backends,
                          .device = device,
                          .timeout = timeout,
                          .store = store.own,
                          .group = nullptr,
                          .hosts_store = store.hosted_here};
  try {
    parts.group = make_group(store.root, store.generation, backends, info, device, timeout);
  } catch (const std::exception& error) {
    throw std::runtime_error(who(info) + ": could not connect the ranks (backend " + backends.text() +
                             "): " + detail::brief(error) + detail::missing_ranks(store, info));
  }
  return ProcessGroup(std::make_shared<GroupState>(std::move(parts)));
}

GroupHandle::GroupHandle(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
int GroupHandle::rank() const {
  return state_->info().rank;
}
int GroupHandle::size() const {
  return state_->info().world_size;
}
int GroupHandle::local_rank() const {
  return state_->info().local_rank;
}
c10::Device GroupHandle::device() const {
  return state_->device();
}
const std::string& GroupHandle::backend() const {
  return state_->backend_text();
}
const RankInfo& GroupHandle::info() const {
  return state_->info();
}
bool GroupHandle::is_open() const {
  return state_->is_open();
}
GroupState& GroupHandle::state() const {
  return *state_;
}

ProcessGroup::ProcessGroup(std::shared_ptr<GroupState> state)
    : handle_(std::move(state)), owns_(true), exceptions_at_construction_(std::uncaught_exceptions()) {}

ProcessGroup::ProcessGroup(ProcessGroup&& other) noexcept
    : handle_(other.handle_),
      owns_(std::exchange(other.owns_, false)),
      exceptions_at_construction_(std::uncaught_exceptions()) {}

ProcessGroup& ProcessGroup::operator=(ProcessGroup&& other) noexcept {
  if (this != &other) {
    release();
    handle_ = other.handle_;
    owns_ = std::exchange(other.owns_, false);
    exceptions_at_construction_ = std::uncaught_exceptions();
  }
  return *this;
}

ProcessGroup::~ProcessGroup() {
  release();
}

void ProcessGroup::release() noexcept {
  if (!owns_) return;
  if (std::uncaught_exceptions() > exceptions_at_construction_) {
    abort();
    return;
  }
  try {
    close();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddprun: %s: closing the process group: %s\n", who(info()).c_str(),
                 detail::brief(error).c_str());
  }
}

void ProcessGroup::close() {
  handle_.state().close();
}

void ProcessGroup::abort() noexcept {
  handle_.state().abort();
}

}  // namespace ddp
