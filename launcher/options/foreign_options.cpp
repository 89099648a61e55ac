#include "launcher/options/foreign_options.h"

#include <algorithm>
#include <array>

#include "base/joined.h"
#include "launcher/options/generated_texts.h"

namespace launcher {
namespace {

using ddp::detail::joined;
using Treatment = ForeignOption::Treatment;

struct Page {
  std::string_view launcher;
  std::string_view title;
};

constexpr std::array kPages = std::to_array<Page>({{"mpirun", "Open MPI's mpirun"},
                                                   {"hydra", "MPICH's mpiexec (hydra)"},
                                                   {"horovodrun", "horovodrun"},
                                                   {"srun", "srun"},
                                                   {"deepspeed", "deepspeed"},
                                                   {"accelerate", "accelerate launch"}});

std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    words.push_back(text.substr(0, text.find(separator)));
    text.remove_prefix(std::min(text.size(), words.back().size() + 1));
  }
  return words;
}

std::string in_code(std::string_view text) {
  return "`" + in_cell(text) + "`";
}

std::string original_option(const ForeignOption& option) {
  return joined(split_at(option.names, ','), ", ", [&](std::string_view name) {
    return in_code(std::string(name) + (option.values.empty() ? "" : " ") + std::string(option.values));
  });
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// ddprun's words with the names of the values in them.
std::string translation(const ForeignOption& option) {
  const auto values = split_at(option.values, ' ');
  std::string text;
  for (const std::string_view word : split_at(option.ddprun_text, '\n')) {
    std::string filled(word);
    // Shows the word "ppr:N:node" as N, the part that is captured.
    const auto shown = [](std::string_view value) { return value.find(':') == std::string_view::npos ? value : "N"; };
    if (!values.empty()) replace_all(filled, "$1", shown(values[0]));
    if (values.size() > 1) replace_all(filled, "$2", shown(values[1]));
    replace_all(filled, "$each", "NAME");
    std::replace(filled.begin(), filled.end(), '_', '-');
    replace_all(filled, "OMP-NUM-THREADS", "OMP_NUM_THREADS");
    ddp::detail::append_item(text, in_code(filled), " ");
  }
  return text;
}

std::string row(const ForeignOption& option) {
  switch (option.treatment) {
    case Treatment::kSame:
      return "the same | " + in_cell(option.ddprun_text);
    case Treatment::kAccepted:
      return "accepted | " + in_cell(option.ddprun_text);
    case Treatment::kIgnored:
      return "ignored | " + in_cell(option.ddprun_text);
    case Treatment::kTranslated:
      return translation(option) + " | ";
    case Treatment::kRefused:
      return "no | " + in_cell(option.ddprun_text);
  }
  return "";
}

bool belongs_to(const ForeignOption& option, std::string_view launcher) {
  const auto launchers = split_at(option.launchers, ' ');
  return std::find(launchers.begin(), launchers.end(), launcher) != launchers.end();
}

}  // namespace

std::vector<ForeignOption> foreign_options() {
  std::vector<ForeignOption> all;
  for (const auto part : {mpirun_options(), horovodrun_options(), scheduler_options()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::string launcher_names(const ForeignOption& option) {
  const auto name = [](std::string_view launcher) { return launcher == "hydra" ? "mpiexec" : launcher; };
  return joined(split_at(option.launchers, ' '), ", ", name, " and ");
}

std::string foreign_options_page() {
  std::string text;
  for (const Page& page : kPages) {
    text.append(text.empty() ? "" : "\n").append("### Options of ").append(page.title);
    text.append("\n\n| there | ddprun | what differs |\n|---|---|---|\n");
    for (const ForeignOption& option : foreign_options()) {
      if (!belongs_to(option, page.launcher)) continue;
      std::string line = "| " + original_option(option) + " | " + row(option);
      line.append(line.ends_with(' ') ? "|\n" : " |\n");
      text += line;
    }
  }
  return text;
}

}  // namespace launcher
