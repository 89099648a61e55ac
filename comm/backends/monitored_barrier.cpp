#include "comm/backends/monitored_barrier.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The highest tags, which programs do not use. Each barrier needs two.
struct Tags {
  explicit Tags(int number) : here(std::numeric_limits<int>::max() - 2 * (number % 1024)), go_on(here - 1) {}
  int here;
  int go_on;
};

std::string limit_of(const MonitoredBarrier& barrier) {
  return std::to_string(barrier.timeout.count()) + " ms";
}

void report_to_first(c10d::Backend& backend, const Tags& tags) {
  std::vector<at::Tensor> sent{at::zeros({1}, at::kByte)};
  std::vector<at::Tensor> received{at::zeros({1}, at::kByte)};
  const int first = 0;
  try {
    const auto announced = backend.send(sent, first, tags.here);
    const auto answered = backend.recv(received, first, tags.go_on);
    announced->wait();
    answered->wait();
    if (received[0].data_ptr<uint8_t>()[0] != 0) throw std::runtime_error("rank 0 has given up");
  } catch (const std::exception& error) {
    throw std::runtime_error("Rank " + std::to_string(backend.getRank()) +
                             " successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                             "from rank 0. Rank 0 reports which rank is missing. Original error: " +
                             error.what());
  }
}

class FirstRank {
 public:
  FirstRank(c10d::Backend& backend, const MonitoredBarrier& barrier)
      : backend_(backend), barrier_(barrier), tags_(barrier.number), deadline_(Clock::now() + barrier.timeout) {}

  void run() {
    try {
      await([&](int rank, std::vector<at::Tensor>& data) { return backend_.recv(data, rank, tags_.here); });
    } catch (...) {
      refuse();
      throw;
    }
    await([&](int rank, std::vector<at::Tensor>& data) { return backend_.send(data, rank, tags_.go_on); });
  }

 private:
  // Sends a refusal. Otherwise the ranks that have arrived would wait until the group's timeout expires.
  void refuse() noexcept {
    try {
      for (int rank = 1; rank < backend_.getSize(); ++rank) {
        std::vector<at::Tensor> no{at::ones({1}, at::kByte)};
        backend_.send(no, rank, tags_.go_on);
      }
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the group has failed, which they learn as well
    }
  }

  // With names_all_missing the whole timeout applies to each rank, since earlier ranks may have used it up.
  milliseconds left() const {
    if (barrier_.names_all_missing) return barrier_.timeout;
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
    if (left.count() > 0) return left;
    throw std::runtime_error("Rank 0 timed out in monitoredBarrier after " + limit_of(barrier_) + ": " +
                             std::to_string(arrived_) + " of " + std::to_string(backend_.getSize() - 1) +
                             " other ranks had arrived");
  }

  template <typename Begin>
  void await(const Begin& begin) {
    std::vector<std::vector<at::Tensor>> data;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int rank = 1; rank < backend_.getSize(); ++rank) data.push_back({at::zeros({1}, at::kByte)});
    for (int rank = 1; rank < backend_.getSize(); ++rank) {
      works.push_back(begin(rank, data[static_cast<size_t>(rank) - 1]));
    }
    std::string missing;
    arrived_ = 0;
    for (int rank = 1; rank < backend_.getSize(); ++rank) {
      const milliseconds limit = left();
      try {
        works[static_cast<size_t>(rank) - 1]->wait(limit);
        ++arrived_;
      } catch (const std::exception& error) {
        if (!barrier_.names_all_missing) {
          throw std::runtime_error("[Rank 0]: Rank " + std::to_string(rank) + " failed to pass monitoredBarrier in " +
                                   limit_of(barrier_) + ". Original error: " + error.what());
        }
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      }
    }
    if (missing.empty()) return;
    throw std::runtime_error("[Rank 0]: Ranks " + missing + " failed to pass monitoredBarrier in " +
                             limit_of(barrier_));
  }

  c10d::Backend& backend_;
  const MonitoredBarrier& barrier_;
  const Tags tags_;
  const Clock::time_point deadline_;
  int arrived_ = 0;
};

}  // namespace

void monitored_barrier(c10d::Backend& backend, const MonitoredBarrier& barrier) {
  if (backend.getSize() == 1) return;
  if (backend.getRank() != 0) {
    report_to_first(backend, Tags(barrier.number));
  } else {
    FirstRank(backend, barrier).run();
  }
}

}  // namespace ddp::detail
