// How often a job may still be restarted because of failures: in all, and within an hour. Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace launcher::elastic {

struct BudgetOptions {
  int max_restarts = 0;
  int restarts_per_hour = 0;  // 0: as many as max_restarts
};

class RestartBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RestartBudget(BudgetOptions options) : options_(options) {}

  // "" when there is one left, else why there is none, to follow on "the job is not restarted: ".
  std::string reason_to_end(Time now) const;
  void take(Time now);
  // The same of the last one that was taken: an earlier coordinator's loss is counted when that is past.
  std::string overdraft(Time now) const;
  // What an earlier coordinator of the job had taken.
  void restore(int used, std::vector<Time> recent);

  int used() const { return used_; }
  // Those within the last hour.
  std::vector<Time> recent(Time now) const;

 private:
  std::string refusal(int used, int within_hour) const;

  BudgetOptions options_;
  int used_ = 0;
  std::vector<Time> taken_;
};

}  // namespace launcher::elastic
