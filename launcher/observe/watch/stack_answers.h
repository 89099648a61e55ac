// The job's side of `ddprun stack`. Stacks are available only after some milliseconds: the answer to the first request
// is another request, which the client repeats until the answer has the stacks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/observe/watch/thread_stacks.h"

namespace launcher {

class StackAnswers {
 public:
  static constexpr const char* kRequest = "stack";           // "stack", "stack 1 3": ranks
  static constexpr const char* kWaiting = "stacks of ask ";  // followed by the number of the request

  // `asker` is used only during the call; `ranks` are this node's. `request` has no line end; the answer has one.
  std::string answer(const std::string& request, StackRequester& asker, const std::vector<WatchedRank>& ranks);
  static bool is_stack_request(const std::string& request) { return request.starts_with(kRequest); }
  // Call it when no stacks will arrive any more.
  void end_attempt() { results_.clear(); }

 private:
  std::string begin(const std::string& request, StackRequester& asker, const std::vector<WatchedRank>& ranks);

  int number_ = 0;
  std::map<int, std::string> results_;  // by request; empty: still waiting
};

}  // namespace launcher
