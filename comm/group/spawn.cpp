#include "ddprun/comm/spawn.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "base/job.h"
#include "comm/backends/backend_types.h"
#include "comm/backends/cuda_plugin.h"
#include "comm/core/backend_map.h"
#include "comm/core/cuda_devices.h"
#include "comm/group/connect_group.h"
#include "comm/group/desync_debugger.h"
#include "comm/group/group_state.h"
#include "comm/group/spawn_ranks.h"
#include "comm/group/store.h"
#include "comm/group/store_keys.h"

namespace ddp {

SpawnError::SpawnError(int rank, const std::string& message) : std::runtime_error(message), rank_(rank) {}
SpawnError::~SpawnError() = default;

namespace detail {
namespace {

// Decides by the named backends: a backend that serves both devices through host memory leaves the ranks on the CPU.
bool may_take_cuda(const std::string& named) {
  if (named.empty()) return true;
  const BackendMap backends = parse_backend_map(named, known_backends());
  return backends.cuda != nullptr && (backends.cuda != backends.cpu || !backends.cuda->wait_blocks);
}

std::vector<c10::Device> choose_devices(int size, const SpawnOptions& options) {
  if (!options.devices.empty()) {
    if (options.devices.size() != static_cast<size_t>(size)) {
      throw std::invalid_argument("spawn: expected one device per rank, " + std::to_string(size) + ", got " +
                                  std::to_string(options.devices.size()));
    }
    for (const c10::Device device : options.devices) check_kind("spawn", device);
    return options.devices;
  }
  std::vector<c10::Device> devices(static_cast<size_t>(size), c10::Device(c10::kCPU));
  const bool has_enough = may_take_cuda(options.backend) && cuda_device_count() >= size;
  for (int rank = 0; has_enough && rank < size; ++rank) {
    devices[static_cast<size_t>(rank)] = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(rank));
  }
  return devices;
}

bool are_distinct_cuda_devices(std::vector<c10::Device> devices) {
  std::ranges::sort(devices, {}, &c10::Device::index);
  return std::ranges::all_of(devices, &c10::Device::is_cuda) && std::ranges::adjacent_find(devices) == devices.end();
}

BackendMap backends_for(const std::vector<c10::Device>& devices, const SpawnOptions& options) {
  // Ranks that share a GPU need a backend that also serves the GPU's tensors.
  const bool is_on_cpu = std::ranges::all_of(devices, &c10::Device::is_cpu);
  const bool has_own_cuda = are_distinct_cuda_devices(devices);
  const BackendMap backends = choose_backends(options.backend,
                                              {.have_cuda_device_each = [&] { return has_own_cuda; },
                                               .on_cpu = is_on_cpu || has_own_cuda ? default_cpu_backend() : "gloo"},
                                              known_backends());
  if (!can_connect(backends, static_cast<int>(devices.size()))) {
    throw std::invalid_argument("spawn: backend '" + backends.text() + "' is for one rank");
  }
  return backends;
}

// The ranks of one spawn() call: their groups, and the first failure among them.
class Ranks {
 public:
  Ranks(int size, bool aborts_others) : states_(static_cast<size_t>(size)), aborts_others_(aborts_others) {}

  void enter(int rank, const std::shared_ptr<GroupState>& state) {
    const std::lock_guard lock(mutex_);
    states_[static_cast<size_t>(rank)] = state;
    if (first_ && aborts_others_) state->abort(/*announce=*/false);
  }

  // The failure is recorded before connections close. So a failure that only follows from closed connections cannot be
  // the first.
  void fail(int rank, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!first_) {
      first_ = std::move(error);
      failed_rank_ = rank;
    }
    for (size_t other = 0; other < states_.size(); ++other) {
      const bool is_concerned = aborts_others_ || other == static_cast<size_t>(rank);
      if (is_concerned && states_[other]) states_[other]->abort(/*announce=*/other == static_cast<size_t>(rank));
    }
  }

  void rethrow(int size) const {
    if (!first_) return;
    const RankInfo info{.rank = failed_rank_, .world_size = size};
    try {
      std::rethrow_exception(first_);
    } catch (const std::exception& error) {
      const std::string message = message_of(error);
      const bool named = message.rfind(who(info), 0) == 0;
      std::throw_with_nested(SpawnError(failed_rank_, named ? message : who(info) + ": " + message));
    } catch (...) {
      std::throw_with_nested(SpawnError(failed_rank_, who(info) + ": threw something that is not a std::exception"));
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<GroupState>> states_;
  const bool aborts_others_;
  std::exception_ptr first_;
  int failed_rank_ = 0;
};

}  // namespace

void spawn_ranks(int size, const std::function<void(const GroupHandle& group)>& body, const SpawnOptions& options,
                 const SpawnTestOptions& test_options) {
  if (size < 1) throw std::invalid_argument("spawn: expected at least 1 rank, got " + std::to_string(size));
  const std::vector<c10::Device> devices = choose_devices(size, options);
  const BackendMap backends = backends_for(devices, options);
  for (const c10::Device device : devices) {
    if (device.is_cuda() || backends.with(&BackendTraits::needs_cuda) != nullptr) {
      require_cuda({.world_size = size}, "device '" + device.str() + "'");
    }
  }
  check_backends(backends, {.world_size = size});
  prepare_process();
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  const auto timeout = options.timeout.value_or(std::chrono::minutes(30));
  check_timeout({.world_size = size}, "spawn", timeout);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(timeout);

  Ranks ranks(size, test_options.aborts_others);
  const auto run_rank = [&](int rank) {
    const ThreadJob job({.rank = rank, .size = size});
    try {
      const c10::Device device = devices[static_cast<size_t>(rank)];
      bind_device(device);
      const RankInfo info{
          .rank = rank, .world_size = size, .local_rank = rank, .local_world_size = size, .source = "spawn"};
      auto own = c10::make_intrusive<c10d::PrefixStore>(keys::space(0) + "/" + keys::group(0), store);
      own->set(keys::present(rank), std::string("thread"));
      const auto desync_debugger = std::make_shared<DesyncDebugger>(own, nullptr, rank);
      const auto space = c10::make_intrusive<c10d::PrefixStore>(group_prefix(0), store);
      const auto connection = connect_group({.info = info,
                                             .backends = backends,
                                             .device = device,
                                             .timeout = timeout,
                                             .store = space,
                                             .name = "0",
                                             .description = "default_pg",
                                             .in_process = true});
      const auto state =
          std::make_shared<GroupState>(GroupState::Parts{.info = info,
                                                         .backends = connection.backends,
                                                         .device = device,
                                                         .timeout = timeout,
                                                         .store = own,
                                                         .group = connection.group,
                                                         .hosts_store = false,
                                                         .in_process = true,
                                                         .job = {.store = own, .desync_debugger = desync_debugger}});
      ranks.enter(rank, state);
      body(GroupHandle(state));
      state->close();
    } catch (...) {
      ranks.fail(rank, std::current_exception());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  ranks.rethrow(size);
}

}  // namespace detail

void spawn(int size, const std::function<void(const GroupHandle& group)>& body, const SpawnOptions& options) {
  if (!body) throw std::invalid_argument("spawn: expected a function to run on each rank, got an empty one");
  detail::spawn_ranks(size, body, options, {});
}

}  // namespace ddp
