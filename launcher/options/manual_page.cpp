#include <CLI/App.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "launcher/options/generated_texts.h"
#include "launcher/options/manual_sections.h"
#include "launcher/options/roff.h"
#include "launcher/options/script_text.h"
#include "launcher/os/version.h"

namespace launcher {
namespace {

// "ddprun [OPTIONS] [--] PROGRAM", with what stands before the first bracket bold.
std::string usage_line(const std::string& usage) {
  const std::size_t end = std::min(usage.find(" ["), usage.size());
  return roff_bold(usage.substr(0, end)) + roff_escaped(usage.substr(end)) + "\n";
}

std::string synopsis(const std::string& usage) {
  std::string lines = usage_line(usage);
  for (const Subcommand& subcommand : subcommands()) {
    for (const SubcommandForm& form : subcommand.forms)
      lines += ".br\n" + usage_line("ddprun " + form.usage(subcommand.word));
  }
  return lines;
}

std::string paragraphs(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines.append(lines.empty() ? "" : ".PP\n").append(roff_prose(text));
  return lines;
}

std::string entries(const std::vector<ManualEntry>& list) {
  std::string lines;
  for (const ManualEntry& entry : list) lines += ".TP\n" + roff_term(entry.term) + "\n" + roff_prose(entry.meaning);
  return lines;
}

std::string usage_of(const ShownOption& option) {
  std::string text;
  for (const std::string& name : option.names) text.append(text.empty() ? "" : ", ").append(roff_bold(name));
  if (option.value.empty()) return text;
  const std::string value = roff_italic(option.value);
  return text + (option.value_may_be_missing ? "[=" + value + "]" : " " + value);
}

std::string entry_of(const ShownOption& option) {
  const std::string more = option.details.empty() ? "" : ". " + without_links(option.details);
  const std::string text = ".TP\n" + usage_of(option) + "\n" + roff_prose(option.meaning + more);
  if (option.variable.empty()) return text;
  return text + ".br\nDefault: " + roff_escaped(option.fallback) + "; variable: " + roff_bold(option.variable) + "\n";
}

std::string subcommand_entry(const Subcommand& subcommand, const std::string& options) {
  std::string lines;
  for (const SubcommandForm& form : subcommand.forms)
    lines.append(lines.empty() ? ".TP\n" : ".TQ\n").append(usage_line("ddprun " + form.usage(subcommand.word)));
  lines += roff_prose(subcommand.meaning + (subcommand.meaning.ends_with('.') ? "" : "."));
  lines += ".RS\n.TP\n" + roff_italic("JOB") + "\n" + roff_prose(subcommand.job);
  return lines + options + ".RE\n.IP\n" + roff_prose("Exit status: " + subcommand.exit_status);
}

std::string examples() {
  std::string lines;
  for (const ManualEntry& example : manual_examples()) {
    lines += ".TP\n" + roff_bold(example.term) + "\n" + roff_prose(example.meaning);
  }
  return lines;
}

// "mpirun(1)" -> its name bold, as man's readers make links of it.
std::string related() {
  std::string lines;
  for (const std::string& page : related_pages()) {
    const std::size_t bracket = page.find('(');
    lines.append(lines.empty() ? "" : ",\n").append(roff_bold(page.substr(0, bracket)) + page.substr(bracket));
  }
  return lines + "\n";
}

}  // namespace

std::string manual_page(const OptionTable& table) {
  const TextBody body =
      text_body(table, {.group = [](const ShownGroup& group) { return ".SS " + roff_escaped(group.title) + "\n"; },
                        .option = [](const ShownOption& option, const auto&) { return entry_of(option); },
                        .subcommand = subcommand_entry});
  const std::string version = "ddprun " + roff_escaped(kDdprunVersion);
  return ".\\\" Printed by \"ddprun --generate man\": made of the table of its options.\n"
         ".TH DDPRUN 1 \"" +
         std::string(kReleaseDate) + "\" \"" + version +
         "\" \"User Commands\"\n"
         ".SH NAME\nddprun \\- start the processes of a distributed program and end them together\n"
         ".SH SYNOPSIS\n" +
         synopsis(table.app().get_name()) + ".SH DESCRIPTION\n" + paragraphs(manual_description()) + ".SH OPTIONS\n" +
         roff_prose(
             "In names - and _ are the same, and --name VALUE is --name=VALUE. The last of several equal options "
             "counts. "
             "An option that is not given is taken from its variable, where that is set and not empty.") +
         body.options + ".SH SUBCOMMANDS\n" +
         roff_prose(
             "As the first argument these words are for ddprun itself. A program of such a name is started by its "
             "path: "
             "`ddprun ./status`.") +
         body.subcommands +
         ".SH ENVIRONMENT\n"
         ".SS Of each rank\n" +
         roff_prose("All of the environment of ddprun, and:") + entries(variables_of_ranks()) + ".SS Of ddprun\n" +
         roff_prose("The variables of the options, and:") + entries(variables_of_ddprun()) + ".SH EXIT STATUS\n" +
         entries(exit_statuses()) + ".PP\n" +
         roff_prose(
             "With `--exit_code torchrun` each status that comes from the ranks or from a signal is 1, but for 0.") +
         ".SH EXAMPLES\n" + examples() + ".SH SEE ALSO\n" + related();
}

}  // namespace launcher
