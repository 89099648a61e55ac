#include "launcher/options/script_text.h"

#include <algorithm>

#include "launcher/options/split_arguments.h"

namespace launcher {

std::string single_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
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

std::vector<std::string> names_taken(const ShownOption& option) {
  std::vector<std::string> names = option.names;
  if (std::find(names.begin(), names.end(), "--nproc_per_node") != names.end()) names.emplace_back(kMpirunsRanks);
  return names;
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

}  // namespace launcher
