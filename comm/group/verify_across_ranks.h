// Checks that all ranks of a group describe something in the same words, before collectives would hang or mix up data.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Compares `lines` over the ranks, through the store: no collective, so ranks that run Python need not take part and
/// are left out. Every other rank of the group must call it, in the same order as other comparisons. When ranks differ,
/// throws std::runtime_error on every rank, with the first difference and whose it is: "`subject` differ; the first
/// difference: rank 2 has …, the others …", or without a majority "rank 0 has …, rank 1 has …". Throws as well, naming
/// them, when ranks don't come within `timeout`, by default the group's.
void verify_equal_across_ranks(const std::string& subject, const std::vector<std::string>& lines,
                               const GroupHandle& group, std::optional<std::chrono::milliseconds> timeout = {});

/// The group's ranks that do not run this library but, as a rule, Python. The same on all others. Not a collective;
/// asks the store once per rank.
std::vector<int> ranks_running_python(const GroupHandle& group);

}  // namespace ddp
