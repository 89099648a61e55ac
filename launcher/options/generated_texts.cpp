#include "launcher/options/generated_texts.h"

#include <algorithm>
#include <array>

#include "launcher/options/foreign_options.h"
#include "launcher/options/split_arguments.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

// "`-n`, `--nproc_per_node N|gpu|cpu|auto`"
std::string usage_in_code(const ShownOption& option) {
  return "`" + joined(option.names, "`, `") + option.usage().substr(joined(option.names).size()) + "`";
}

std::string row(const ShownOption& option) {
  const std::string more = option.details.empty() ? "" : ". " + option.details;
  return "| " + in_cell(usage_in_code(option)) + " | " + in_cell(option.fallback) + " | " +
         in_cell(option.meaning + more) + " |\n";
}

// The tables of options in docs/launcher.md: a heading and a table for each group.
std::string options_page(const OptionTable& table) {
  const auto heading = [](const ShownGroup& group) {
    return "### " + group.title + "\n\n" + (group.introduction.empty() ? "" : group.introduction + "\n\n") +
           "| option | default | meaning |\n|---|---|---|\n";
  };
  const auto begin = [&](const ShownGroup& group) {
    return (&group == &table.groups().front() ? "" : "\n") + heading(group);
  };
  return text_body(table,
                   {.group = begin, .option = [](const ShownOption& option, const auto&) { return row(option); }})
      .options;
}

std::string entries_page(const char* title, const std::vector<Entry>& entries) {
  std::string text = std::string(title) + "\n|---|---|\n";
  for (const Entry& entry : entries) text += "| " + in_cell(entry.term) + " | " + in_cell(entry.meaning) + " |\n";
  return text;
}

constexpr std::array kGeneratedTexts = std::to_array<GeneratedText>({
    {"man", manual_page},
    {"bash", bash_completion},
    {"zsh", zsh_completion},
    {"fish", fish_completion},
    {"options", options_page},
    {"variables", [](const OptionTable&) { return entries_page("| variable | value |", variables_of_ranks()); }},
    {"exit-statuses", [](const OptionTable&) { return entries_page("| status | when |", exit_statuses()); }},
    {"coming-from", [](const OptionTable&) { return foreign_options_page(); }},
});

}  // namespace

std::span<const GeneratedText> generated_texts() {
  return kGeneratedTexts;
}

std::string generated_text(const std::string& kind, const OptionTable& table) {
  const auto text = std::find_if(kGeneratedTexts.begin(), kGeneratedTexts.end(),
                                 [&](const auto& other) { return other.kind == kind; });
  if (text == kGeneratedTexts.end()) throw UsageError("--generate: there is no text named " + kind);
  return text->make(table);
}

TextBody text_body(const OptionTable& table, const TextFormat& format) {
  TextBody body;
  for (const ShownGroup& group : table.groups()) {
    body.options += format.group(group);
    for (const ShownOption& option : group.options) body.options += format.option(option, "");
  }
  for (const Subcommand& subcommand : subcommands()) {
    std::string forms;
    for (const SubcommandForm& form : subcommand.forms) {
      std::string options;
      for (const ShownOption& option : form.options) options += format.option(option, form.words(subcommand.word));
      forms += format.form(subcommand, form, options);
    }
    body.subcommands += format.subcommand(subcommand, forms);
  }
  return body;
}

std::string subcommand_words() {
  return joined(subcommands(), " ", [](const Subcommand& subcommand) { return subcommand.word; });
}

std::string single_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result.append(c == '\'' ? "'\\''" : std::string(1, c));
  return result + "'";
}

std::string in_cell(std::string_view text) {
  std::string result;
  for (const char c : text) result.append(c == '|' ? "\\|" : std::string(1, c));
  return result;
}

std::string other_spelling(const std::string& name) {
  if (name.find('_') == std::string::npos) return "";
  std::string other = name;
  std::replace(other.begin(), other.end(), '_', '-');
  return other;
}

std::vector<std::string> unlisted_names(const ShownOption& option) {
  const bool is_ranks = std::find(option.names.begin(), option.names.end(), "--nproc_per_node") != option.names.end();
  return is_ranks ? std::vector<std::string>{std::string(kMpirunRanksOption)} : std::vector<std::string>{};
}

}  // namespace launcher
