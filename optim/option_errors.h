// Errors about options: Python's words and numbers, after the rank.
#pragma once

namespace ddp::optim {

/// Throws std::invalid_argument "rank 1 of 2: <what>: <value>" unless `valid` and the value is finite.
void require_value(bool valid, const char* what, double value);

}  // namespace ddp::optim
