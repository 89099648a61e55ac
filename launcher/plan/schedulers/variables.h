// Reads single variables of schedulers; what it refuses is an std::invalid_argument that names the variable.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/schedulers/process_context.h"
#include "launcher/plan/schedulers/systems.h"

namespace launcher {

struct Detection {
  std::optional<ScheduledPlace> place = std::nullopt;
  std::vector<std::string> notes{};  // what else is there and why it does not count, a line each
};

// What started this very process counts before what gave it the machine: Open MPI, MPICH, jsrun and srun come in this
// order before the operators and services that tell a container or a machine its number. Of those all that are there
// must agree. In a rank that another launcher started nothing counts. Throws nothing: what cannot be right is the
// place's obstacle.
Detection detect_scheduler(const ProcessContext& context);

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

// A job of which `name` tells the number of nodes and `index` this one's number, from 0.
void read_nodes(const ProcessContext& context, const std::string& name, const std::string& index,
                ScheduledPlace& place);

}  // namespace launcher
