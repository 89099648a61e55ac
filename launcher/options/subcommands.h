// What `ddprun status`, `ddprun top` and `ddprun timeline` take, as their --help, the manual page and the completions
// of shells tell it.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/shown_options.h"

namespace launcher {

// One way to call it. Behind its words [JOB] may stand, and the options.
struct SubcommandForm {
  std::string verb{};  // "start", the second word; empty: there is none
  std::vector<ShownOption> options{};

  // "timeline start"
  std::string words(const std::string& word) const { return word + (verb.empty() ? "" : " " + verb); }
  // "status [JOB] [--json]"; of an option's names the first.
  std::string usage(const std::string& word) const;
};

struct Subcommand {
  std::string word{};  // "status", ddprun's first argument
  std::string meaning{};
  std::string job{};  // what JOB means
  std::vector<SubcommandForm> forms{};
  std::string exit_status{};

  std::vector<std::string> verbs() const;
};

std::vector<Subcommand> subcommands();

}  // namespace launcher
