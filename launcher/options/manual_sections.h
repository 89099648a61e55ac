// What the manual page says besides the options.
#pragma once

#include <string>
#include <vector>

namespace launcher {

// One term and what it means; in both, what stands between backquotes is bold.
struct ManualEntry {
  std::string term;
  std::string meaning;
};

std::vector<std::string> manual_description();  // paragraphs
std::vector<ManualEntry> variables_of_ranks();
std::vector<ManualEntry> variables_of_ddprun();  // those that it reads beside the options'
std::vector<ManualEntry> exit_statuses();
std::vector<ManualEntry> manual_examples();  // the command, without backquotes, and what it does
std::vector<std::string> related_pages();    // "torchrun(1)"

}  // namespace launcher
