#include "launcher/options/generated_texts.h"

#include <algorithm>
#include <array>

#include "launcher/options/foreign_options.h"
#include "launcher/options/option_table.h"
#include "launcher/options/script_text.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

// "`-n`, `--nproc_per_node N|gpu|cpu|auto`"
std::string usage_in_code(const ShownOption& option) {
  return "`" + joined(option.names, "`, `") + option.usage().substr(joined(option.names, ", ").size()) + "`";
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

constexpr std::array<GeneratedText, 6> kTexts = {{
    {"man", manual_page},
    {"bash", bash_completion},
    {"zsh", zsh_completion},
    {"fish", fish_completion},
    {"options", options_page},
    {"coming-from", [](const OptionTable&) { return foreign_options_page(); }},
}};

}  // namespace

std::span<const GeneratedText> generated_texts() {
  return kTexts;
}

std::string generated_text(const std::string& kind, const OptionTable& table) {
  const auto text = std::find_if(kTexts.begin(), kTexts.end(), [&](const auto& other) { return other.kind == kind; });
  if (text == kTexts.end()) throw UsageError("--generate: nothing is known to make for " + kind);
  return text->make(table);
}

}  // namespace launcher
