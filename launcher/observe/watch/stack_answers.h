// The job's side of `ddprun stack`, whose answer is there only after some milliseconds: a first question is answered
// with another one, which is asked until the stacks are the answer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/observe/watch/thread_stacks.h"

namespace launcher {

class StackAnswers {
 public:
  static constexpr const char* kQuestion = "stack";          // "stack", "stack 1 3": ranks
  static constexpr const char* kWaiting = "stacks of ask ";  // and the number of the request

  // `asker` must outlive the call alone; `ranks` are this node's. Without the line's end. The answer has one.
  std::string answer(const std::string& question, StackRequester& asker, const std::vector<WatchedRank>& ranks);
  static bool is_stack_request(const std::string& question) { return question.starts_with(kQuestion); }
  // No stacks come any more.
  void end_attempt() { results_.clear(); }

 private:
  std::string begin(const std::string& question, StackRequester& asker, const std::vector<WatchedRank>& ranks);

  int number_ = 0;
  std::map<int, std::string> results_;  // by request; empty: waited for
};

}  // namespace launcher
