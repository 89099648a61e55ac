// The values of a storage, computed again by repeating the calls that led to them.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>

#include "fsdp/deferred/recorded_operator.h"

namespace ddp::fsdp {

/// New memory with the values that storage number `storage` had after `last_writer`. Memory of other storages is freed
/// as soon as no further call needs it.
c10::Storage replay(uint64_t storage, const std::shared_ptr<const RecordedOperator>& last_writer);

}  // namespace ddp::fsdp
