#include "launcher/nodes/elastic/restart_budget.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace launcher::elastic {

std::vector<RestartBudget::Time> RestartBudget::recent(Time now) const {
  std::vector<Time> recent;
  std::copy_if(taken_.begin(), taken_.end(), std::back_inserter(recent),
               [now](Time time) { return now - time < std::chrono::hours(1); });
  return recent;
}

std::string RestartBudget::reason_to_end(Time now) const {
  return refusal(used_, static_cast<int>(recent(now).size()));
}

std::string RestartBudget::overdraft(Time now) const {
  return used_ == 0 ? "" : refusal(used_ - 1, static_cast<int>(recent(now).size()) - 1);
}

std::string RestartBudget::refusal(int used, int within_hour) const {
  if (used >= options_.max_restarts) {
    if (options_.max_restarts == 0) return "--max_restarts is 0";
    return "it was restarted " + std::to_string(used) + " times, as often as --max_restarts allows";
  }
  if (options_.restarts_per_hour > 0 && within_hour >= options_.restarts_per_hour) {
    return "it was restarted " + std::to_string(within_hour) +
           " times within an hour, as often as --restarts_per_hour allows";
  }
  return "";
}

void RestartBudget::take(Time now) {
  taken_ = recent(now);
  taken_.push_back(now);
  ++used_;
}

void RestartBudget::restore(int used, std::vector<Time> recent) {
  used_ = used;
  taken_ = std::move(recent);
}

}  // namespace launcher::elastic
