#include "tests/support/ranks.h"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "comm/group_state.h"
#include "comm/store_keys.h"
#include "tests/support/late_backend.h"

namespace ddp::test {
namespace {

// As init_process_group() does: gloo writes to sockets whose peer may have gone.
[[gnu::constructor]] void ignore_broken_pipes() {
  std::signal(SIGPIPE, SIG_IGN);
}

// LibTorch 2.11's flight recorder is one object a process and writes to one of its maps without a lock, so groups in
// several threads crash now and then. It reads this variable at its first use.
[[gnu::constructor]] void turn_flight_recorder_off() {
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
}

RankInfo info_of(int rank, int size) {
  return {.rank = rank, .world_size = size, .local_rank = rank, .local_world_size = size};
}

ProcessGroup make_rank(int rank, int size, const c10::intrusive_ptr<c10d::Store>& root, const RankOptions& options) {
  auto own = c10::make_intrusive<c10d::PrefixStore>(keys::space(0) + "/" + keys::group(0), root);
  own->set(keys::present(rank), std::string("thread"));
  auto gloo_options = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  c10::intrusive_ptr<c10d::Backend> backend = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("gloo", root), rank, size, gloo_options);
  auto type = c10d::ProcessGroup::GLOO;
  if (options.wire == Wire::kLate) {
    backend = make_late_backend(backend);
    type = c10d::ProcessGroup::CUSTOM;
  }
  auto group = c10::make_intrusive<c10d::ProcessGroup>(root, rank, size);
  group->setDefaultBackend(type);
  group->setBackend(c10::kCPU, type, backend);
  group->setGroupName("0");
  return ProcessGroup(
      std::make_shared<detail::GroupState>(detail::GroupState::Parts{.info = info_of(rank, size),
                                                                     .backends = {.cpu = "gloo", .cuda = ""},
                                                                     .device = c10::Device(c10::kCPU),
                                                                     .timeout = options.timeout,
                                                                     .store = own,
                                                                     .group = group,
                                                                     .hosts_store = false}));
}

}  // namespace

void run_ranks(int size, const std::function<void(const GroupHandle& group)>& body, const RankOptions& options) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(options.timeout);
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const ProcessGroup group = make_rank(rank, size, store, options);
        body(group);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

GroupHandle unconnected_rank(int rank, int size) {
  return GroupHandle(std::make_shared<detail::GroupState>(detail::GroupState::Parts{.info = info_of(rank, size)}));
}

}  // namespace ddp::test
