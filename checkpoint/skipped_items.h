// Words for what a file holds and C++ cannot read: StoredTensors::skipped.
#pragma once

#include <string>

#include <ddprun/checkpoint/safetensors.h>

namespace ddp {

/// " (a sparse tensor …)" when `name` is among what was skipped, else nothing: for after a missing name.
std::string skipped_reason(const StoredTensors& stored, const std::string& name);

/// "'mask' (a sparse tensor …), 'ids' (…) and 3 more"; empty when nothing was skipped.
std::string list_skipped(const StoredTensors& stored);

/// Says on standard error that `source` holds the items of list_skipped() and that they were not read. Nothing for an
/// empty list.
void warn_of_skipped(const std::string& source, const std::string& list);

}  // namespace ddp
