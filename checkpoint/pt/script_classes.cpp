#include "checkpoint/pt/script_classes.h"

#include <algorithm>
#include <optional>

namespace ddp::pt {
namespace {

constexpr std::string_view kFolder = "code/";
constexpr std::string_view kEnding = ".py";

// ["weight", "bias", ]
void add_names(std::string_view list, std::set<std::string>& names) {
  for (auto begin = list.find('"'); begin != std::string_view::npos; begin = list.find('"')) {
    const auto end = list.find('"', begin + 1);
    if (end == std::string_view::npos) return;
    names.emplace(list.substr(begin + 1, end - begin - 1));
    list.remove_prefix(end + 1);
  }
}

// What follows `beginning`, where the line has it.
std::optional<std::string_view> after(std::string_view line, std::string_view beginning) {
  if (!line.starts_with(beginning)) return std::nullopt;
  return line.substr(beginning.size());
}

}  // namespace

void add_script_classes(std::string_view name, std::string_view source, ScriptClasses& classes) {
  if (!name.starts_with(kFolder) || !name.ends_with(kEnding) || name.size() <= kFolder.size() + kEnding.size()) return;
  std::string module(name.substr(kFolder.size(), name.size() - kFolder.size() - kEnding.size()));
  std::ranges::replace(module, '/', '.');
  std::string type;
  std::set<std::string> names;
  int lists = 0;
  const auto finish = [&] {
    if (!type.empty() && lists == 2) classes[module + "." + type] = std::move(names);
    names.clear();
    lists = 0;
  };
  while (!source.empty()) {
    const auto line = source.substr(0, source.find('\n'));
    source.remove_prefix(std::min(source.size(), line.size() + 1));
    if (const auto rest = after(line, "class ")) {
      finish();
      type = rest->substr(0, rest->find('('));
    } else if (const auto list = after(line, "  __parameters__ = ")) {
      add_names(*list, names);
      ++lists;
    } else if (const auto other = after(line, "  __buffers__ = ")) {
      add_names(*other, names);
      ++lists;
    }
  }
  finish();
}

}  // namespace ddp::pt
