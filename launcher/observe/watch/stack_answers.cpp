#include "launcher/observe/watch/stack_answers.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "launcher/observe/watch/collective_text.h"
#include "launcher/observe/watch/stack_report.h"
#include "launcher/os/system/json_text.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// The limit for all ranks and threads, so that `ddprun stack` takes less than 2 s.
constexpr auto kStacksTimeout = 1500ms;
constexpr std::size_t kMaxResults = 16;

}  // namespace

std::string StackAnswers::answer(const std::string& request, StackRequester& asker,
                                 const std::vector<WatchedRank>& ranks) {
  if (!request.starts_with(kWaiting)) return begin(request, asker, ranks);
  const int number = std::atoi(request.c_str() + std::string_view(kWaiting).size());
  const auto found = results_.find(number);
  if (found == results_.end()) return "error: the ranks have ended\n";
  if (found->second.empty()) return request + "\n";
  std::string result = std::move(found->second);
  results_.erase(found);
  return result;
}

std::string StackAnswers::begin(const std::string& request, StackRequester& asker,
                                const std::vector<WatchedRank>& ranks) {
  if (ranks.empty()) return "error: no rank runs on this node, or the job is suspended or being stopped\n";
  std::vector<int> wanted;
  std::istringstream words(request.substr(std::string_view(kRequest).size()));
  for (int rank = 0; words >> rank;) wanted.push_back(rank);
  std::vector<int> here;
  for (const WatchedRank& rank : ranks) here.push_back(rank.rank);
  for (const int rank : wanted) {
    if (std::find(here.begin(), here.end(), rank) != here.end()) continue;
    return "error: rank " + std::to_string(rank) + " is not on this node, which has " + rank_ranges(here) + "\n";
  }
  if (wanted.empty()) wanted = here;
  std::vector<RankStacks> ended;
  for (const WatchedRank& rank : ranks) {
    if (rank.runs() || std::erase(wanted, rank.rank) == 0) continue;
    ended.push_back({.rank = rank.rank, .pid = rank.pid, .ended = rank.ended});
  }
  if (wanted.empty()) return "error: " + ended_ranks_text(ended) + "\n";
  while (results_.size() >= kMaxResults) results_.erase(results_.begin());  // results for which no client asks
  const int number = ++number_;
  results_[number] = "";
  asker.ask({.ranks = std::move(wanted),
             .timeout = kStacksTimeout,
             .done = [this, number, ended = std::move(ended)](std::vector<RankStacks> stacks) {
               stacks.insert(stacks.end(), ended.begin(), ended.end());
               const auto found = results_.find(number);
               if (found != results_.end()) found->second = json_text(json_of(stacks)) + "\n";
             }});
  return kWaiting + std::to_string(number) + "\n";
}

}  // namespace launcher
