#include "launcher/local/output/prefix_template.h"

#include <algorithm>
#include <cctype>
#include <chrono>

#include "launcher/os/system/clock_text.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {

PrefixTemplate::Field PrefixTemplate::field_named(std::string_view name) {
  if (name == "rank") return Field::kRank;
  if (name == "local_rank") return Field::kLocalRank;
  if (name == "host") return Field::kHost;
  if (name == "stream") return Field::kStream;
  if (name == "time") return Field::kTime;
  return Field::kText;
}

PrefixTemplate::Field PrefixTemplate::torchrun_field(std::string_view name) {
  if (name == "hostname") return Field::kHost;
  return name == "rank" || name == "local_rank" ? field_named(name) : Field::kText;
}

void PrefixTemplate::add_text(std::string_view text) {
  if (!text.empty()) pieces_.push_back({Field::kText, std::string(text)});
}

// A brace without a matching brace is ordinary text.
PrefixTemplate::PrefixTemplate(std::string_view text) {
  const std::string_view given = text;
  if (text == "horovod") text = "[1,{rank}]<{stream}>:";
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    const std::size_t close = open == std::string_view::npos ? open : text.find('}', open);
    if (close == std::string_view::npos) break;
    add_text(text.substr(0, open));
    const Field field = field_named(text.substr(open + 1, close - open - 1));
    if (field == Field::kText) {
      throw LaunchError("--prefix '" + std::string(given) +
                        "': unknown field; the fields are {rank}, {local_rank}, {host}, {stream} and {time}");
    }
    pieces_.push_back({field});
    text.remove_prefix(close + 1);
  }
  add_text(text);
}

PrefixTemplate PrefixTemplate::from_torchrun(std::string_view text, std::string_view role) {
  PrefixTemplate prefix;
  while (true) {
    const std::size_t dollar = text.find('$');
    if (dollar == std::string_view::npos || dollar + 1 == text.size()) break;
    prefix.add_text(text.substr(0, dollar));
    text.remove_prefix(dollar);
    if (text[1] == '$') {
      prefix.add_text("$");
      text.remove_prefix(2);
      continue;
    }
    const bool braced = text[1] == '{';
    std::size_t end = braced ? 2 : 1;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    const std::string_view name = text.substr(braced ? 2 : 1, end - (braced ? 2 : 1));
    if (braced && end < text.size() && text[end] == '}') ++end;
    const bool is_complete = !braced || text[end - 1] == '}';
    if (const Field field = torchrun_field(name); is_complete && field != Field::kText) {
      prefix.pieces_.push_back({field});
    } else {
      prefix.add_text(is_complete && name == "role_name" ? role : text.substr(0, end));
    }
    text.remove_prefix(end);
  }
  prefix.add_text(text);
  return prefix;
}

bool PrefixTemplate::has_time() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.field == Field::kTime; });
}

std::string PrefixTemplate::expand(const RankPlace& place, std::string_view host, std::string_view stream,
                                   std::string_view time) const {
  std::string expanded;
  for (const Piece& piece : pieces_) {
    switch (piece.field) {
      case Field::kText:
        expanded.append(piece.text);
        break;
      case Field::kRank:
        expanded.append(std::to_string(place.rank));
        break;
      case Field::kLocalRank:
        expanded.append(std::to_string(place.local_rank));
        break;
      case Field::kHost:
        expanded.append(host);
        break;
      case Field::kStream:
        expanded.append(stream);
        break;
      case Field::kTime:
        expanded.append(time);
        break;
    }
  }
  return expanded;
}

std::string time_text() {
  return date_text(std::chrono::system_clock::now());
}

}  // namespace launcher
