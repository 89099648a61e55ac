// Internal: what c10d says of a backward that has not brought all gradients.
#pragma once

#include <exception>
#include <string>
#include <vector>

namespace ddp::detail {

/// The text of c10d's error, with the names of the parameters that had no gradient: c10d gives them only at
/// TORCH_DISTRIBUTED_DEBUG=INFO and above, else their indices. `names`: of all parameters, in c10d's order.
std::string with_parameter_names(const std::exception& error, const std::vector<std::string>& names);

}  // namespace ddp::detail
