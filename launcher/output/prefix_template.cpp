#include "launcher/output/prefix_template.h"

#include <functional>

#include "launcher/launch_error.h"

namespace launcher {
namespace {

using Replace = std::function<bool(std::string_view field, std::string& out)>;

// Copies `text`, each {field} replaced; false at a field that `replace` does not know. A brace without partner is
// itself.
bool substitute(std::string_view text, const Replace& replace, std::string& out) {
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    const std::size_t close = open == std::string_view::npos ? open : text.find('}', open);
    if (close == std::string_view::npos) break;
    out.append(text.substr(0, open));
    if (!replace(text.substr(open + 1, close - open - 1), out)) return false;
    text.remove_prefix(close + 1);
  }
  out.append(text);
  return true;
}

}  // namespace

PrefixTemplate::PrefixTemplate(std::string_view text) : text_(text == "horovod" ? "[1,{rank}]<{stream}>:" : text) {
  std::string ignored;
  const auto is_known = [](std::string_view field, std::string&) {
    return field == "rank" || field == "local_rank" || field == "host" || field == "stream" || field == "time";
  };
  if (!substitute(text_, is_known, ignored)) {
    throw LaunchError("--prefix '" + std::string(text) +
                      "': unknown field; there are {rank}, {local_rank}, {host}, {stream} and {time}");
  }
}

bool PrefixTemplate::has_time() const {
  return text_.find("{time}") != std::string::npos;
}

std::string PrefixTemplate::expand(const RankPlace& place, std::string_view host, std::string_view stream,
                                   std::string_view time) const {
  std::string expanded;
  const auto replace = [&](std::string_view field, std::string& out) {
    if (field == "rank") out.append(std::to_string(place.rank));
    if (field == "local_rank") out.append(std::to_string(place.local_rank));
    if (field == "host") out.append(host);
    if (field == "stream") out.append(stream);
    if (field == "time") out.append(time);
    return true;
  };
  substitute(text_, replace, expanded);
  return expanded;
}

}  // namespace launcher
