// Reads single variables of schedulers. For invalid values it throws std::invalid_argument, which names the variable.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/plan/schedulers/process_context.h"
#include "launcher/plan/schedulers/systems.h"

namespace launcher {

constexpr int kMaxScheduledNodes = 1 << 16;

// The variable's value; an empty one counts as unset, as it does for options.
std::optional<std::string> text_of(const ProcessContext& context, const std::string& name);
bool has(const ProcessContext& context, const std::string& name);
// Returns "NAME=value" in a form that fits in one line.
std::string shown(std::string_view name, std::string_view value);

std::optional<Sourced<int>> number_of(const ProcessContext& context, const std::string& name, int lowest, int highest);
// The same, but throws if the variable is not set; the text names `seen`, which is set.
Sourced<int> required(const ProcessContext& context, const std::string& name, const std::string& seen, int lowest,
                      int highest);
Sourced<std::string> sourced_text(const std::string& name, const std::string& value);

// Reads the number of nodes from `name`, and this node's number, from 0, from `index`.
void read_nodes(const ProcessContext& context, const std::string& name, const std::string& index,
                ScheduledPlace& place);

}  // namespace launcher
