#include "launcher/plan/schedulers/variables.h"

#include <charconv>
#include <stdexcept>

#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

constexpr std::size_t kMaxShownBytes = 80;

Sourced<int> parse(const std::string& name, const std::string& text, int lowest, int highest) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < lowest || value > highest) {
    throw std::invalid_argument(shown(name, text) + ": expected a whole number from " + std::to_string(lowest) +
                                " to " + std::to_string(highest));
  }
  return {value, shown(name, text)};
}

}  // namespace

std::optional<std::string> text_of(const ProcessContext& context, const std::string& name) {
  auto value = context.variable(name);
  if (value && value->empty()) value.reset();
  return value;
}

bool has(const ProcessContext& context, const std::string& name) {
  return text_of(context, name).has_value();
}

std::string shown(std::string_view name, std::string_view value) {
  const std::string_view front = beginning(value, kMaxShownBytes);
  return std::string(name) + "=" + printable(front) + (front.size() < value.size() ? "..." : "");
}

std::optional<Sourced<int>> number_of(const ProcessContext& context, const std::string& name, int lowest, int highest) {
  const auto text = text_of(context, name);
  return text ? std::optional(parse(name, *text, lowest, highest)) : std::nullopt;
}

Sourced<int> required(const ProcessContext& context, const std::string& name, const std::string& seen, int lowest,
                      int highest) {
  const auto text = text_of(context, name);
  if (!text) throw std::invalid_argument(name + " is not set although " + seen + " is");
  return parse(name, *text, lowest, highest);
}

Sourced<std::string> sourced_text(const std::string& name, const std::string& value) {
  return {value, shown(name, value)};
}

void read_nodes(const ProcessContext& context, const std::string& name, const std::string& index,
                ScheduledPlace& place) {
  place.nnodes = required(context, name, index, 1, kMaxScheduledNodes);
  place.node_rank = required(context, index, name, 0, kMaxScheduledNodes);
  if (place.node_rank->value >= place.nnodes->value) {
    throw std::invalid_argument(place.node_rank->why + " is not below " + place.nnodes->why);
  }
}

}  // namespace launcher
