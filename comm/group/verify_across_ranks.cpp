#include "comm/group/verify_across_ranks.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "comm/core/graph_capture.h"
#include "comm/group/desync_debugger.h"
#include "comm/group/failure_cause.h"
#include "comm/group/group_state.h"
#include "comm/group/store.h"
#include "comm/group/store_keys.h"

namespace ddp {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// FNV-1a: the same in every build, unlike std::hash.
std::string digest(const std::string& text) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return std::to_string(hash) + "/" + std::to_string(text.size());
}

std::string truncated(const std::vector<std::string>& lines, size_t index) {
  constexpr size_t kMaxShownLength = 300;
  if (index >= lines.size()) return "nothing more";
  return lines[index].size() <= kMaxShownLength ? lines[index] : lines[index].substr(0, kMaxShownLength) + "...";
}

bool runs_this_library(c10d::Store& store, int rank) {
  return store.check({keys::present(rank)});
}

struct RankDidNotArrive : std::runtime_error {
  RankDidNotArrive(int rank, const std::exception& error)
      : std::runtime_error("waited for rank " + std::to_string(rank) +
                           ", which did not reach the same point within the timeout: " + detail::message_of(error)) {}
};

// One comparison as one rank sees it.
class Comparison {
 public:
  Comparison(const detail::GroupState& state, Store store, std::vector<int> ranks, uint64_t number,
             std::chrono::milliseconds timeout)
      : state_(state),
        store_(std::move(store)),
        ranks_(std::move(ranks)),
        number_(number),
        deadline_(Clock::now() + timeout) {}

  // A rank compares itself with the first rank only, so that the number of requests does not grow with the square of
  // the number of ranks.
  void run(const std::string& subject, const std::vector<std::string>& lines) {
    const int own = state_.info().rank;
    const std::string text = join_lines(lines);
    const std::string own_digest = digest(text);
    const int reference = ranks_.front();
    store_->set(digest_key(own), own_digest);
    const bool differs = own != reference && read_digest(reference) != own_digest;
    // A text that is equal on all ranks need not be written.
    if (own == reference || differs) store_->set(text_key(own), text);
    if (differs) store_->set(difference_key(), own_digest);
    const auto count = static_cast<int64_t>(ranks_.size());
    if (store_->add(arrivals_key(), 1) == count) store_->set(all_key(), own_digest);
    await_all();
    if (store_->check({difference_key()})) {
      std::map<std::string, std::vector<int>> by_digest;
      for (const int rank : ranks_) by_digest[read_digest(rank)].push_back(rank);
      throw std::runtime_error(who(state_.info()) + ": " + difference(subject, by_digest));
    }
    forget();
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string digest_key(int rank) const { return keys::compared(number_, rank) + "/digest"; }
  std::string text_key(int rank) const { return keys::compared(number_, rank) + "/text"; }
  std::string arrivals_key() const { return keys::compared(number_, -1) + "/arrivals"; }
  std::string all_key() const { return keys::compared(number_, -1) + "/all"; }
  std::string difference_key() const { return keys::compared(number_, -1) + "/difference"; }
  std::string departures_key() const { return keys::compared(number_, -1) + "/departures"; }

  std::string text_of(const std::string& key) {
    const std::vector<uint8_t> bytes = store_->get(key);
    return {bytes.begin(), bytes.end()};
  }

  std::chrono::milliseconds left() const {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()),
                    std::chrono::milliseconds(1));
  }

  std::string read_digest(int rank) {
    const std::string key = digest_key(rank);
    try {
      store_->wait({key}, left());
      return text_of(key);
    } catch (const detail::StoreUnreachable&) {
      throw;
    } catch (const std::exception& error) {
      throw RankDidNotArrive(rank, error);
    }
  }

  void await_all() {
    try {
      store_->wait({all_key()}, left());
    } catch (const detail::StoreUnreachable&) {
      throw;
    } catch (const std::exception& error) {
      for (const int rank : ranks_) {
        if (!store_->check({digest_key(rank)})) throw RankDidNotArrive(rank, error);
      }
      if (!store_->check({all_key()})) throw;
    }
  }

  // If there is a majority: the ranks that differ from it. Otherwise the two lowest ranks that differ.
  std::string difference(const std::string& subject, const std::map<std::string, std::vector<int>>& by_digest) {
    const auto most = std::ranges::max_element(by_digest, {}, [](const auto& entry) { return entry.second.size(); });
    const bool has_majority = 2 * most->second.size() > ranks_.size();
    const int first = has_majority ? most->second.front() : ranks_.front();
    const auto is_other = [&](int rank) { return text_id(by_digest, rank) != text_id(by_digest, first); };
    const int second = *std::ranges::find_if(ranks_, is_other);
    const auto a = split_lines(text_of(text_key(first)));
    const auto b = split_lines(text_of(text_key(second)));
    size_t index = 0;
    while (index < a.size() && index < b.size() && a[index] == b[index]) ++index;
    const std::string of_second = "rank " + std::to_string(second) + " has " + truncated(b, index);
    const std::string begin = subject + " differ; the first difference: ";
    if (!has_majority)
      return begin + "rank " + std::to_string(first) + " has " + truncated(a, index) + ", " + of_second;
    return begin + of_second + ", the others " + truncated(a, index);
  }

  static const std::string& text_id(const std::map<std::string, std::vector<int>>& by_digest, int rank) {
    const auto has_it = [rank](const auto& entry) {
      return std::ranges::find(entry.second, rank) != entry.second.end();
    };
    return std::ranges::find_if(by_digest, has_it)->first;
  }

  // The last rank that has read everything removes the keys: programs may wrap models in a loop.
  void forget() {
    if (store_->add(departures_key(), 1) != static_cast<int64_t>(ranks_.size())) return;
    store_->deleteKey(text_key(ranks_.front()));
    for (const int rank : ranks_) store_->deleteKey(digest_key(rank));
    for (const std::string& key : {arrivals_key(), all_key(), departures_key()}) store_->deleteKey(key);
  }

  const detail::GroupState& state_;
  Store store_;
  const std::vector<int> ranks_;  // those that run this library
  uint64_t number_;
  Clock::time_point deadline_;
};

std::vector<int> ranks_to_compare(const GroupHandle& group) {
  const std::vector<int> python = ranks_running_python(group);
  std::vector<int> ranks;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (std::ranges::find(python, rank) == python.end()) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

void verify_equal_across_ranks(const std::string& subject, const std::vector<std::string>& lines,
                               const GroupHandle& group, std::optional<std::chrono::milliseconds> timeout) {
  detail::GroupState& state = group.state();
  const Store store = state.store();
  if (!store || group.size() == 1) return;
  detail::refuse_capture(who(group.info()) + ": comparing " + subject,
                         "the host waits for the other ranks. Do it once before the capture");
  state.log().set_compares(true);
  const auto ended = c10::make_scope_exit([&] { state.log().set_compares(false); });
  try {
    Comparison(state, store, ranks_to_compare(group), state.next_comparison(), timeout.value_or(state.timeout()))
        .run(subject, lines);
  } catch (const detail::StoreUnreachable& error) {
    state.job().desync_debugger->note_failure();
    throw std::runtime_error(who(group.info()) + ": " + subject + " cannot be compared" +
                             detail::about_store(group.info(), error.what()));
  } catch (const RankDidNotArrive& error) {
    // That rank may itself be waiting for one that has ended.
    const std::string cause = detail::comparison_failure_cause(state);
    const std::string text =
        subject + " cannot be compared" + (cause.empty() ? std::string(": ") + error.what() : cause);
    throw std::runtime_error(who(group.info()) + ": " + text);
  } catch (const std::exception&) {
    state.job().desync_debugger->note_failure();
    throw;
  }
}

std::vector<int> ranks_running_python(const GroupHandle& group) {
  const Store store = group.state().store();
  if (!store || group.size() == 1) return {};
  return group.state().python_ranks([&] {
    std::vector<int> ranks;
    try {
      for (int rank = 0; rank < group.size(); ++rank) {
        if (rank != group.rank() && !runs_this_library(*store, rank)) ranks.push_back(rank);
      }
    } catch (const detail::StoreUnreachable& error) {
      throw std::runtime_error(who(group.info()) + ": cannot find out which ranks run Python" +
                               detail::about_store(group.info(), error.what()));
    }
    return ranks;
  });
}

}  // namespace ddp
