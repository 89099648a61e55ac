#include "ddprun/comm/process_group.h"

#include <c10/core/DeviceGuard.h>

#include <cstdio>
#include <stdexcept>
#include <utility>

#include <ddprun/base/failure_handlers.h>

#include "base/malloc_tuning.h"
#include "comm/backends/backend_types.h"
#include "comm/backends/cuda_plugin.h"
#include "comm/core/backend_map.h"
#include "comm/core/cuda_devices.h"
#include "comm/core/device_choice.h"
#include "comm/core/graph_capture.h"
#include "comm/core/init_method.h"
#include "comm/group/connect_group.h"
#include "comm/group/gpu_claims.h"
#include "comm/group/group_state.h"
#include "comm/group/store.h"

namespace ddp {
namespace {

using detail::cuda_device_count;
using detail::GroupState;
using detail::require_cuda;

[[noreturn]] void refuse_place(const std::string& why) {
  throw std::invalid_argument("init_process_group: rank_info: " + why);
}

// Values of the environment have been checked already; these are given by the program.
void check_place(const RankInfo& info) {
  const auto is_place = [](int rank, int size) { return size >= 1 && rank >= 0 && rank < size; };
  if (!is_place(info.rank, info.world_size)) {
    refuse_place("rank=" + std::to_string(info.rank) + ", world_size=" + std::to_string(info.world_size) +
                 ": expected 0 <= rank < world_size");
  }
  if (!is_place(info.local_rank, info.local_world_size)) {
    refuse_place("local_rank=" + std::to_string(info.local_rank) + ", local_world_size=" +
                 std::to_string(info.local_world_size) + ": expected 0 <= local_rank < local_world_size");
  }
}

void check_address(const RankInfo& info, const detail::InitMethod& method) {
  if (method.kind == detail::InitMethod::Kind::kFile) return;
  if (info.world_size > 1 && (info.master_addr.empty() || info.master_port == 0)) {
    refuse_place("a job of " + std::to_string(info.world_size) + " ranks needs master_addr and master_port, got '" +
                 info.master_addr + "' and " + std::to_string(info.master_port));
  }
}

BackendMap backends_for(const ProcessGroupOptions& options, const RankInfo& info) {
  const BackendMap backends = choose_backends(options.backend,
                                              {.is_single_process = info.world_size == 1,
                                               .have_cuda_device_each = [] { return cuda_device_count() > 0; },
                                               .on_cpu = default_cpu_backend()},
                                              detail::known_backends());
  if (!can_connect(backends, info.world_size)) {
    throw std::invalid_argument(who(info) + ": backend '" + backends.text() +
                                "' is for a single process, and this job has " + std::to_string(info.world_size) +
                                ". Leave the backend empty, which chooses one, or name 'gloo' or 'nccl'");
  }
  return backends;
}

c10::Device choose_device(const ProcessGroupOptions& options, const BackendMap& backends, const RankInfo& info) {
  const BackendTraits* exclusive = backends.with(&BackendTraits::needs_cuda);
  const auto alone_with_cuda = [&] { return backends.with(&BackendTraits::for_one_rank) && cuda_device_count() > 0; };
  const bool wants_cuda = options.device ? options.device->is_cuda() : exclusive != nullptr || alone_with_cuda();
  if (!wants_cuda && exclusive != nullptr) {
    throw std::invalid_argument(who(info) + ": backend '" + backends.text() + "' needs a CUDA device, not '" +
                                options.device->str() + "'");
  }
  if (!wants_cuda) return options.device.value_or(c10::Device(c10::kCPU));
  require_cuda(info, options.device ? "device '" + options.device->str() + "'" : "backend '" + backends.text() + "'");
  if (options.device && options.device->has_index()) return *options.device;

  const auto visible = process_environment()("CUDA_VISIBLE_DEVICES");
  const std::string shown = visible ? "'" + *visible + "'" : "unset";
  const DeviceChoice choice = lacks_local_rank(info.source, process_environment())
                                  ? choose_cuda_device_by_rank(info.rank, cuda_device_count(), shown)
                                  : choose_cuda_device(info.local_rank, info.local_world_size, cuda_device_count(),
                                                       exclusive != nullptr ? exclusive->title : "", shown);
  if (!choice.notice.empty()) {
    std::fprintf(stderr, "ddprun: %s: %s\n", who(info).c_str(), choice.notice.c_str());
  }
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(choice.index)};
}

}  // namespace

ProcessGroup init_process_group(const ProcessGroupOptions& options) {
  detail::refuse_capture("init_process_group", "it connects the ranks. Call it before the capture");
  tune_malloc();
  detail::prepare_process();
  install_failure_handlers();
  const detail::InitMethod method = detail::parse_init_method(options.init_method);
  const RankInfo info = detail::place_for(method, options.rank_info);
  check_place(info);
  if (options.device) detail::check_kind(who(info), *options.device);
  const BackendMap backends = backends_for(options, info);
  const c10::Device device = choose_device(options, backends, info);
  const auto timeout = options.timeout.value_or(backends.default_timeout());
  detail::check_timeout(info, "init_process_group", timeout);
  detail::bind_device(device);
  detail::check_backends(backends, info);
  check_address(info, method);

  const detail::JobStore store = detail::join_store(info, backends, timeout, method.path);
  if (const BackendTraits* exclusive = backends.with(&BackendTraits::needs_cuda)) {
    const std::string uuid = require_cuda(info, exclusive->title).device_uuid(device.index());
    if (store.own) {
      detail::claim_gpu(*store.own, info,
                        {.uuid = uuid, .backend = exclusive->title, .hosts_store = store.hosted_here});
    }
  }
  GroupState::Parts parts{.info = info,
                          .backends = backends,
                          .device = device,
                          .timeout = timeout,
                          .store = store.own,
                          .group = nullptr,
                          .hosts_store = store.hosted_here,
                          .job = store.links};
  try {
    const auto space = c10::make_intrusive<c10d::PrefixStore>(detail::group_prefix(store.generation), store.root);
    auto connected = detail::connect_group({.info = info,
                                            .backends = backends,
                                            .device = device,
                                            .timeout = timeout,
                                            .store = space,
                                            .name = "0",
                                            .description = "default_pg"});
    parts.group = std::move(connected.group);
    parts.backends = connected.backends;
    return ProcessGroup(std::make_shared<GroupState>(parts));
  } catch (const std::exception& error) {
    throw std::runtime_error(who(info) + ": could not connect the ranks (backend " + backends.text() +
                             "): " + detail::message_of(error) + detail::connect_failure_cause(store, info));
  }
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
  state_->ensure_connected();
  return *state_;
}
GroupState& GroupHandle::unconnected_state() const {
  return *state_;
}

std::vector<int> get_process_group_ranks(const GroupHandle& group) {
  return group.unconnected_state().members();
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
                 detail::message_of(error).c_str());
  }
}

void ProcessGroup::close() {
  handle_.unconnected_state().close();
}

void ProcessGroup::abort() noexcept {
  handle_.unconnected_state().abort();
}

}  // namespace ddp
