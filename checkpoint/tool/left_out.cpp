#include "checkpoint/tool/left_out.h"

#include <algorithm>

#include "checkpoint/core/printable_text.h"
#include "checkpoint/tool/plain_values.h"

namespace ddp::tool {

LeftOut other_contents(const TensorSource& source) {
  LeftOut left_out;
  const auto add = [&](const std::string& what, std::string name) {
    left_out[what + ", which need a .pt file"].push_back(std::move(name));
  };
  if (const auto ranks = source.files().find(std::string(kRanksFile)); ranks != source.files().end()) {
    for (const auto& tensor : ranks->second.tensors) add("states of ranks", tensor.name);
  }
  for (const auto& [file, text] : source.objects()) {
    add("objects", file.substr(0, file.size() - kObjectEnding.size()));
  }
  const auto values = plain_values(source);
  for (const auto& [name, value] : values.items()) {
    if (name == "values" && value.is_object()) {
      for (const auto& [own, ignored] : value.items()) add("values", own);
    } else {
      add("values", name);
    }
  }
  return left_out;
}

std::vector<std::string> describe(const LeftOut& left_out) {
  constexpr size_t kShown = 12;
  std::vector<std::string> lines;
  for (const auto& [what, names] : left_out) {
    auto line = what + " (" + std::to_string(names.size()) + "): ";
    for (size_t i = 0; i < std::min(names.size(), kShown); ++i) line += (i > 0 ? ", " : "") + printable_text(names[i]);
    if (names.size() > kShown) line += " and " + std::to_string(names.size() - kShown) + " more";
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace ddp::tool
