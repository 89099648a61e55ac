#include "launcher/options/foreign_arguments.h"

#include <algorithm>
#include <cctype>

#include "base/joined.h"
#include "launcher/options/foreign_options.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

using Treatment = ForeignOption::Treatment;

// "--map-by", "-map_by" and "-map-by" have the same name, "map_by".
std::string plain_name(std::string_view dashed) {
  std::string name(dashed.substr(std::min(dashed.find_first_not_of('-'), dashed.size())));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<std::string> parts(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(separator));
    parts.emplace_back(part);
    text.remove_prefix(std::min(text.size(), part.size() + 1));
  }
  return parts;
}

bool has_name(const ForeignOption& option, const std::string& name) {
  const auto names = parts(option.names, ',');
  return std::any_of(names.begin(), names.end(), [&](const std::string& each) { return plain_name(each) == name; });
}

// True for a word that matches any text.
bool is_placeholder(std::string_view pattern) {
  return pattern != "N" && std::isupper(static_cast<unsigned char>(pattern.front())) != 0 &&
         pattern.find_first_of("|=") == std::string_view::npos;
}

// Returns the part of `value` that a word of ForeignOption::values captures; nothing if it does not match.
std::optional<std::string> captured(const std::string& value, std::string_view pattern) {
  if (is_placeholder(pattern)) return value;
  for (const std::string& alternative : parts(pattern, '|')) {
    if (alternative == value) return value;
    if (alternative == "NAME=VALUE" && value.find('=', 1) != std::string::npos) return value;
    const std::size_t number = alternative.find('N');
    if (number == std::string::npos) continue;
    if (!value.starts_with(alternative.substr(0, number))) continue;
    std::string_view after = std::string_view(alternative).substr(number + 1);
    const bool may_continue = after.ends_with('*');
    if (may_continue) after.remove_suffix(1);
    const std::size_t end = std::min(value.find_first_not_of("0123456789", number), value.size());
    const std::string_view rest = std::string_view(value).substr(end);
    if (end > number && (rest == after || (may_continue && rest.starts_with(after))))
      return value.substr(number, end - number);
  }
  return std::nullopt;
}

struct Argument {
  std::string name;
  std::optional<std::string> value{};  // the value in the same word
};

Argument long_form(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  Argument result{plain_name(std::string_view(argument).substr(0, equals))};
  if (equals != std::string::npos) result.value = argument.substr(equals + 1);
  return result;
}

Argument short_form(const std::string& argument) {
  Argument result{argument.substr(1, 1)};
  if (argument.size() > 2) result.value = argument.substr(argument[2] == '=' ? 3 : 2);
  return result;
}

// Returns the values of `option`. The first may be in the option's own word (`own`); the others are in the words after
// it.
std::optional<std::vector<std::string>> captured_values(const ForeignOption& option,
                                                        const std::optional<std::string>& own,
                                                        std::span<const std::string> after) {
  std::vector<std::string> values;
  for (const std::string& pattern : parts(option.values, ' ')) {
    std::string value;
    if (values.empty() && own) {
      value = *own;
    } else {
      const std::size_t next = values.size() - (own ? 1 : 0);
      if (next >= after.size()) return std::nullopt;
      value = after[next];
    }
    auto capture = captured(value, pattern);
    if (!capture) return std::nullopt;
    values.push_back(std::move(*capture));
  }
  return values;
}

void replace(std::string& text, std::string_view mark, const std::string& value) {
  if (const std::size_t at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), value);
}

std::vector<std::string> translated(const ForeignOption& option, const std::vector<std::string>& values) {
  std::vector<std::string> words;
  for (const std::string& word : parts(option.ddprun_text, '\n')) {
    const bool is_for_each = word.find("$each") != std::string::npos;
    for (const std::string& part : is_for_each ? split_at_commas(values.front()) : std::vector<std::string>{""}) {
      std::string filled = word;
      if (is_for_each) replace(filled, "$each", part);
      if (!values.empty()) replace(filled, "$1", values[0]);
      if (values.size() > 1) replace(filled, "$2", values[1]);
      words.push_back(std::move(filled));
    }
  }
  return words;
}

bool is_specific(const ForeignOption& option) {
  const auto patterns = parts(option.values, ' ');
  return std::any_of(patterns.begin(), patterns.end(), [](const std::string& each) { return !is_placeholder(each); });
}

// Finds the rows with the argument's name, and the value in the argument.
std::optional<ForeignUse> use_rows(std::span<const std::string> arguments, const Argument& argument, bool is_own) {
  const std::string shown = arguments.front().substr(0, arguments.front().find('='));
  std::string_view wanted;
  for (const ForeignOption& option : foreign_options()) {
    if (!has_name(option, argument.name) || option.treatment == Treatment::kSame) continue;
    if (is_own && !is_specific(option)) continue;
    const auto values = captured_values(option, argument.value, arguments.subspan(1));
    const bool is_any = !is_specific(option);
    if (option.treatment == Treatment::kRefused && (values || is_any)) {
      throw UsageError(shown + " is an option of " + launcher_names(option) +
                       ", not of ddprun: " + std::string(option.ddprun_text));
    }
    if (!values) {
      wanted = option.values;
      continue;
    }
    ForeignUse use{.taken = std::max<std::size_t>(1, values->size() + (argument.value ? 0 : 1))};
    if (option.treatment == Treatment::kTranslated) use.words = translated(option, *values);
    if (option.treatment == Treatment::kIgnored) use.ignored = option.ddprun_text;
    return use;
  }
  if (!wanted.empty() && !is_own) {
    const bool is_number_wanted = wanted == "N" && (argument.value || arguments.size() > 1);
    if (!is_number_wanted) throw UsageError(shown + " needs a value: " + shown + " " + std::string(wanted));
    throw UsageError(shown + ": expected a number, got " +
                     quoted_value(argument.value.value_or(arguments[std::min<std::size_t>(1, arguments.size() - 1)])));
  }
  return std::nullopt;
}

// --n is an option of mpirun. Other single letters after two dashes are abbreviated options of torchrun.
bool is_foreign_option(const std::string& dashed) {
  const auto options = foreign_options();
  return std::any_of(options.begin(), options.end(), [&](const ForeignOption& option) {
    const auto names = parts(option.names, ',');
    return std::find(names.begin(), names.end(), dashed) != names.end();
  });
}

bool may_take_value(const std::string& name) {
  const auto options = foreign_options();
  return std::any_of(options.begin(), options.end(),
                     [&](const ForeignOption& option) { return has_name(option, name) && !option.values.empty(); });
}

bool looks_like_a_name(std::string_view text) {
  return text.size() > 2 && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-_") == std::string_view::npos;
}

}  // namespace

bool is_whole_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<ForeignUse> foreign_use(std::span<const std::string> arguments,
                                      const std::function<bool(const std::string& dashed)>& is_own) {
  const std::string& first = arguments.front();
  const bool has_two_dashes = first.starts_with("--");
  const Argument full = long_form(first);
  if (full.name.size() >= 2) {
    const bool is_own_name = is_own("--" + full.name);
    if (auto use = use_rows(arguments, full, is_own_name)) return use;
    if (has_two_dashes || is_own_name) return std::nullopt;
  }
  if (has_two_dashes) return is_foreign_option("--" + full.name) ? use_rows(arguments, full, false) : std::nullopt;
  const Argument letter = short_form(first);
  if (letter.name.size() != 1 || is_own("-" + letter.name)) return std::nullopt;
  // -vv is a repeated flag. No other value may come after a letter that takes no value.
  const bool is_repeated = letter.value && letter.value->find_first_not_of(letter.name) == std::string::npos;
  if (letter.value && !is_repeated && !may_take_value(letter.name)) return std::nullopt;
  if (letter.value && !is_repeated && looks_like_a_name(*letter.value))
    return std::nullopt;  // -profile does not mean -p rofile
  return use_rows(arguments, letter, /*is_own=*/false);
}

void IgnoredOptions::add(std::span<const std::string> words, const std::string& reason) {
  const std::string shown = ddp::detail::joined(words, " ");
  const auto known =
      std::find_if(reasons_.begin(), reasons_.end(), [&](const auto& each) { return each.first == reason; });
  if (known == reasons_.end()) {
    reasons_.push_back({reason, {shown}});
  } else if (std::find(known->second.begin(), known->second.end(), shown) == known->second.end()) {
    known->second.push_back(shown);
  }
}

std::vector<std::string> IgnoredOptions::lines() const {
  std::vector<std::string> lines;
  for (const auto& [reason, options] : reasons_) {
    lines.push_back(ddp::detail::joined(options, ", ", {}, " and ") + (options.size() == 1 ? " is" : " are") +
                    " ignored: " + reason);
  }
  return lines;
}

}  // namespace launcher
