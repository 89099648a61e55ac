#include "comm/backends/shm_rendezvous.h"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/backends/store_wait.h"
#include "comm/shm/peers.h"

namespace ddp::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMaxRanks = 256;  // of a host
const std::string kNone = "none: ";
const std::string kPython = "python ";

std::string host_key(int rank) {
  return "shm/host/" + std::to_string(rank);
}
std::string ticket_key(int host) {
  return "shm/ticket/" + std::to_string(host);
}
std::string attached_key(int rank) {
  return "shm/attached/" + std::to_string(rank);
}
// The key with a rank's gloo address. A rank of torch.distributed sets it before any other key.
std::string gloo_key(int rank) {
  return "0/" + std::to_string(rank);
}
const std::string kArrivalsKey = "shm/come";
const std::string kHostsKey = "shm/hosts";
const std::string kDecisionKey = "shm/decision";

bool has_duplicates(std::vector<int> hosts) {
  std::ranges::sort(hosts);
  return std::ranges::adjacent_find(hosts) != hosts.end();
}

// torch's store client prints a warning when a wait expires; our client does not.
bool prints_wait_warnings(c10d::Store& store) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(&store);
  const auto plain = prefixed == nullptr ? nullptr : prefixed->getUnderlyingNonPrefixStore();
  return dynamic_cast<const c10d::TCPStore*>(prefixed == nullptr ? &store : plain.get()) != nullptr;
}

class Rendezvous {
 public:
  Rendezvous(const RankInfo& info, c10d::Store& store, milliseconds timeout)
      : info_(info),
        store_(store),
        has_to_poll_(prints_wait_warnings(store)),
        timeout_(timeout),
        deadline_(Clock::now() + timeout) {}

  ShmRendezvous run(const std::string& host) {
    put(host_key(info_.rank), host);
    const bool is_first = store_.add(kArrivalsKey, 1) == 1;
    if (is_first) put(kHostsKey, hosts_of_all());
    const std::string hosts = get(kHostsKey);
    ShmRendezvous result;
    if (hosts.starts_with(kPython)) {
      result.python = std::stoi(hosts.substr(kPython.size()));
      return result;
    }
    std::istringstream numbers(hosts);
    for (int number = 0; numbers >> number;) result.hosts.push_back(number);
    attach(result);
    if (is_first) put(kDecisionKey, first_objection());
    result.why_not = get(kDecisionKey);
    if (!result.why_not.empty()) result.segment.reset();
    result.any_host_shares = result.why_not.empty() && has_duplicates(result.hosts);
    if (result.segment) result.segment->forget_ticket();
    return result;
  }

 private:
  void put(const std::string& key, const std::string& text) {
    store_.set(key, std::vector<uint8_t>(text.begin(), text.end()));
  }

  std::string get(const std::string& key) {
    await({key}, [] {});
    const std::vector<uint8_t> bytes = store_.get(key);
    return {bytes.begin(), bytes.end()};
  }

  // Waits for the keys, and calls `on_interval` at intervals that grow with the time waited.
  template <typename Look>
  void await(const std::vector<std::string>& keys, const Look& on_interval) {
    constexpr milliseconds kFirst{20};
    constexpr milliseconds kMaxPause{500};
    for (milliseconds slice = kFirst;; slice = std::min(2 * slice, kMaxPause)) {
      const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
      if (left.count() <= 0) {
        throw std::runtime_error("the ranks have not connected within " + std::to_string(timeout_.count()) + " ms");
      }
      if (has_to_poll_ ? poll(keys, std::min(left, slice)) : wait_until_set(store_, keys, std::min(left, slice)))
        return;
      on_interval();
    }
  }

  // Polls the keys. The longer it has waited, the longer the pauses between two checks.
  bool poll(const std::vector<std::string>& keys, milliseconds limit) {
    constexpr milliseconds kMaxPause{50};
    const auto end = Clock::now() + limit;
    while (!store_.check(keys)) {
      if (Clock::now() >= end) return false;
      std::this_thread::sleep_for(pause_);
      pause_ = std::min(pause_ + pause_ / 4 + milliseconds(1), kMaxPause);
    }
    return true;
  }

  struct PythonRankFound {
    int rank;
  };

  void check_for_python(int begin, int end) {
    for (int rank = begin; rank < end; ++rank) {
      if (store_.check({gloo_key(rank)}) && !store_.check({host_key(rank)})) throw PythonRankFound{rank};
    }
  }

  // The number of each rank's host, such as "0 0 1 1", or the number of a rank that runs Python. It waits for some of
  // the ranks at a time, so that the store never checks thousands of keys at once.
  std::string hosts_of_all() {
    constexpr int kAtOnce = 64;
    std::map<std::string, size_t> numbers;
    std::string text;
    try {
      for (int begin = 0; begin < info_.world_size; begin += kAtOnce) {
        const int end = std::min(info_.world_size, begin + kAtOnce);
        std::vector<std::string> keys;
        for (int rank = begin; rank < end; ++rank) keys.push_back(host_key(rank));
        await(keys, [&] { check_for_python(begin, end); });
        for (const std::string& key : keys) {
          const size_t number = numbers.try_emplace(get(key), numbers.size()).first->second;
          text += std::to_string(number) + " ";
        }
      }
    } catch (const PythonRankFound& python) {
      return kPython + std::to_string(python.rank);
    }
    return text;
  }

  // Attaches to the host's segment and reports the result to the other ranks.
  void attach(ShmRendezvous& result) {
    const int host = result.hosts.at(static_cast<size_t>(info_.rank));
    const auto ranks = static_cast<int>(std::ranges::count(result.hosts, host));
    std::string why;
    if (ranks > 1 || info_.world_size == 1) {
      const auto first = std::ranges::find(result.hosts, host) - result.hosts.begin();
      try {
        result.segment = first == info_.rank ? create(host, ranks) : find(host);
        const auto place = std::count(result.hosts.begin(), result.hosts.begin() + info_.rank, host);
        shm::Peers::announce(*result.segment, static_cast<int>(place));
      } catch (const std::exception& error) {
        why = who(info_) + ": " + error.what();
      }
    }
    put(attached_key(info_.rank), why);
  }

  shm::Segment create(int host, int ranks) {
    try {
      if (ranks > kMaxRanks)
        throw std::runtime_error("shared memory supports at most " + std::to_string(kMaxRanks) + " ranks");
      shm::Segment segment = shm::Segment::create(ranks);
      put(ticket_key(host), segment.ticket());
      return segment;
    } catch (const std::exception& error) {
      put(ticket_key(host), kNone + error.what());
      throw;
    }
  }

  shm::Segment find(int host) {
    const std::string ticket = get(ticket_key(host));
    if (ticket.starts_with(kNone)) throw std::runtime_error(ticket.substr(kNone.size()));
    return shm::Segment::attach(ticket);
  }

  std::string first_objection() {
    std::string first;
    for (int rank = 0; rank < info_.world_size; ++rank) {
      const std::string why = get(attached_key(rank));
      if (first.empty()) first = why;
    }
    return first;
  }

  const RankInfo& info_;
  c10d::Store& store_;
  const bool has_to_poll_;
  milliseconds pause_{1};
  const milliseconds timeout_;
  const Clock::time_point deadline_;
};

}  // namespace

ShmRendezvous shm_rendezvous(const RankInfo& info, const std::string& host, c10d::Store& store, milliseconds timeout) {
  return Rendezvous(info, store, timeout).run(host);
}

}  // namespace ddp::detail
