// Reads single variables of schedulers; what it refuses is an std::invalid_argument that names the variable.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/plan/schedulers/process_context.h"
#include "launcher/plan/schedulers/systems.h"

namespace launcher {

constexpr int kMostScheduledNodes = 1 << 16;

// The variable's value; an empty one counts as unset, as it does for options.
std::optional<std::string> text_of(const ProcessContext& context, const std::string& name);
bool has(const ProcessContext& context, const std::string& name);
// "NAME=value", as it can be shown in one line.
std::string shown(std::string_view name, std::string_view value);

std::optional<Sourced<int>> number_of(const ProcessContext& context, const std::string& name, int lowest, int highest);
// The same; throws where the variable is not set, and names `seen`, which is.
Sourced<int> required(const ProcessContext& context, const std::string& name, const std::string& seen, int lowest,
                      int highest);
Sourced<std::string> sourced_text(const std::string& name, const std::string& value);

// A job of which `name` has the number of nodes and `index` this one's number, from 0.
void read_nodes(const ProcessContext& context, const std::string& name, const std::string& index,
                ScheduledPlace& place);

}  // namespace launcher
