// The job's side of `ddprun stack`. Stacks are available only after some milliseconds: the answer to the first question
// is another question, which the client repeats until the answer has the stacks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/observe/watch/thread_stacks.h"

namespace launcher {

class StackAnswers {
 public:
  static constexpr const char* kQuestion = "stack";          // "stack", "stack 1 3": ranks
  static constexpr const char* kWaiting = "stacks of ask ";  // followed by the number of the request

  // `asker` is used only during the call; `ranks` are this node's. `question` has no line end; the answer has one.
  std::string answer(const std::string& question, StackRequester& asker, const std::vector<WatchedRank>& ranks);
  static bool is_stack_request(const std::string& question) { return question.starts_with(kQuestion); }
  // Call it when no stacks will arrive any more.
  void end_attempt() { results_.clear(); }

 private:
  std::string begin(const std::string& question, StackRequester& asker, const std::vector<WatchedRank>& ranks);

  int number_ = 0;
  std::map<int, std::string> results_;  // by request; empty: still waiting
};

}  // namespace launcher
