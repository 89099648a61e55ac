// The arguments of `ddprun status`, `ddprun top`, `ddprun stack` and `ddprun timeline`, for their --help, the manual
// page and the completions of shells.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/shown_options.h"

namespace launcher {

// One form of the command. [JOB] and the options may come after its words.
struct SubcommandForm {
  std::string verb{};  // "start", the second word; empty: none
  std::vector<ShownOption> options{};
  std::string after_job{};  // "[RANK ...]"

  // "timeline start"
  std::string words(const std::string& word) const { return word + (verb.empty() ? "" : " " + verb); }
  // Returns "status [JOB] [--json]", with the first name of each option.
  std::string usage(const std::string& word) const {
    std::string text = words(word) + " [JOB]" + (after_job.empty() ? "" : " " + after_job);
    for (const ShownOption& option : options) {
      text.append(" [").append(option.names.front()).append(option.value.empty() ? "" : " " + option.value).append("]");
    }
    return text;
  }
};

struct Subcommand {
  std::string word{};  // "status", ddprun's first argument
  std::string meaning{};
  std::string job{};  // what JOB means
  std::vector<SubcommandForm> forms{};
  std::string exit_status{};

  std::vector<std::string> verbs() const {
    std::vector<std::string> verbs;
    for (const SubcommandForm& form : forms) {
      if (!form.verb.empty()) verbs.push_back(form.verb);
    }
    return verbs;
  }
};

inline std::vector<Subcommand> subcommands() {
  const std::string id = "its --rdzv_id, or ddprun's process ID; ";
  const std::string not_answering = "0 on success; 1 if there is no such job, or one does not answer.";
  const ShownOption all_users{.names = {"--all_users"}, .meaning = "for root: the jobs of all users"};
  return {
      {.word = "status",
       .meaning = "Shows your jobs on this machine: for each job one line and a table of its ranks.",
       .job = id + "all jobs unless given",
       .forms = {{.options = {{.names = {"--json"}, .meaning = "one JSON document per job, each on its own line"},
                              all_users}}},
       .exit_status = not_answering},
      {.word = "top",
       .meaning = "Shows your jobs on this machine, once a second, until they have ended or you press "
                  "q: a hang and ranks that delay others first. Keys: s shows stacks, / filters, arrows scroll. If "
                  "standard output is not a terminal: once.",
       .job = id + "all jobs unless given",
       .forms = {{.options = {all_users}}},
       .exit_status = not_answering},
      {.word = "stack",
       .meaning = "Shows the stacks of all threads of a running job's ranks on this machine; equal stacks are shown "
                  "once. No rank "
                  "ends or waits for it.",
       .job = id + "may be left out where only one job runs. RANK: only these ranks",
       .forms = {{.options = {all_users}, .after_job = "[RANK ...]"}},
       .exit_status = "0 on success; 1 if there is no such job or rank here, or it does not answer."},
      {.word = "timeline",
       .meaning =
           "Records what each rank of a running job does and when, for Perfetto and ddprun-timeline. To record a "
           "job from its start on: ddprun --timeline FILE",
       .job = id + "may be left out where only one job runs",
       .forms = {{.verb = "start",
                  .options = {{.names = {"-o", "--output"},
                               .value = "FILE",
                               .meaning = "the file to write; without it the file of the job's --timeline"},
                              all_users}},
                 {.verb = "stop", .options = {all_users}}},
       .exit_status = "0 on success; 1 if there is no such job, or it refuses."}};
}

}  // namespace launcher
